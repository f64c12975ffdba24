#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

namespace strake::kernels {

// GPUs only: ids in memory of the host, among them every one that a kernel gets in memory of the device. Those are
// looked at, as looking at the device's waits until it has done all that it was given. None: the device's.
struct HostIds {
  const int32_t* ids = nullptr;
  int64_t count = 0;
};

// One table of embeddings (or of their gradients) and the row that each token reads.
template <typename T>
struct EmbeddingTable {
  T* table = nullptr;  // [rows, columns]; null: no such table
  int64_t rows = 0;
  const int32_t* ids = nullptr;  // [tokens], each in [0, rows)
  HostIds on_host = {};
};

template <typename T>
struct EmbeddingForward {
  EmbeddingTable<const T> word = {};
  EmbeddingTable<const T> position = {};  // optional
  EmbeddingTable<const T> type = {};      // optional
  T* out = nullptr;                       // [tokens, columns]
  int64_t tokens = 0;
  int64_t columns = 0;
  int64_t stride = columns;  // of the rows of out
};

// out[t] = word[id[t]] + position[...] + type[...]. kData if an id is outside its table.
// T is float, BFloat16 or Half.
template <typename T>
void embedding_forward(const EmbeddingForward<T>& args, Isa highest = best_isa());

template <typename T>
struct EmbeddingBackward {
  const T* dout = nullptr;           // [tokens, columns]
  EmbeddingTable<float> table = {};  // gradients, added to: fill with zeros before the first call of a step
  int64_t tokens = 0;
  int64_t columns = 0;
};

// table[id[t]] += dout[t], once for each table of the forward pass. Tokens of one row are summed in order in fp32 and
// added to the table once.
template <typename T>
void embedding_backward(const EmbeddingBackward<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
