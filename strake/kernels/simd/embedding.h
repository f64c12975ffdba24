#pragma once

#include "strake/kernels/embedding_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class T>
inline const T* table_row(const EmbeddingTable<const T>& table, int64_t token, int64_t columns) {
  return table.table == nullptr ? nullptr : table.table + int64_t{table.ids[token]} * columns;
}

template <class S, class T>
void embedding_range(const EmbeddingForward<T>& args, int64_t begin, int64_t end) {
  using Float = typename S::Float;
  for (int64_t token = begin; token < end; ++token) {
    const T* const word = table_row(args.word, token, args.columns);
    const T* const position = table_row(args.position, token, args.columns);
    const T* const type = table_row(args.type, token, args.columns);
    T* const out = args.out + token * args.stride;
    for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
      Float value = S::load(word + c, lanes);
      if (position != nullptr) value = value + S::load(position + c, lanes);
      if (type != nullptr) value = value + S::load(type + c, lanes);
      S::store(out + c, value, lanes);
    });
  }
}

template <class S, class T>
void embedding_gradient_range(const EmbeddingBackward<T>& args, const EmbeddingRun& run, int64_t begin, int64_t end) {
  float* const row = args.table.table + run.row * args.columns + begin;
  for_each_vector<S>(end - begin, [&](int64_t c, auto lanes) {
    typename S::Float sum = S::zero();
    for (int64_t i = 0; i < run.count; ++i) {
      sum = sum + S::load(args.dout + int64_t{run.tokens[i]} * args.columns + begin + c, lanes);
    }
    S::store(row + c, S::load(row + c, lanes) + sum, lanes);
  });
}

}  // namespace
}  // namespace strake::kernels
