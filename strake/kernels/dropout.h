#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/core/philox.h"
#include "strake/kernels/half.h"

// Counter-based dropout. Element e of a token is kept iff
//   philox(key, {e / 4, position, low 32 bits of row, site | (high bits of row) << 16})[e % 4] >= dropout_threshold(p)
// and kept values are scaled by 1 / (1 - p). Masks are a function of the data, not of the batch, the rank or the
// thread, so nothing is stored for the backward pass: every kernel computes its mask again; only attention on GPUs
// keeps its bits (AttentionShape::kept).
namespace strake::kernels {

// Where each packed token comes from: row of the data set, position in its sequence. Read only where dropout is on.
struct TokenIndex {
  const int64_t* row = nullptr;  // below 2^48
  const int32_t* position = nullptr;
};

struct Dropout {
  PhiloxKey key = {};
  uint32_t site = 0;  // which dropout of the model: below 65536
  float p = 0;        // in [0, 1); 0: off
};

template <typename T>
struct DropoutArgs {
  const T* x = nullptr;  // [tokens, columns]
  T* y = nullptr;        // [tokens, columns], may be x
  int64_t tokens = 0;
  int64_t columns = 0;
  Dropout dropout = {};
  TokenIndex index = {};
};

// y = dropout(x). The backward pass is the same function on gradients. Dropped elements are multiplied by 0, so NaN and
// infinity are not hidden. T is float, BFloat16 or Half.
template <typename T>
void dropout(const DropoutArgs<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
