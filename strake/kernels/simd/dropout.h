#pragma once

#include "strake/kernels/dropout_rungs.h"
#include "strake/kernels/simd/keep_bits.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S, class T>
void dropout_range(const DropoutArgs<T>& args, const KeepRule& rule, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    const T* const x = args.x + token * args.columns;
    T* const y = args.y + token * args.columns;
    if (rule.active) {
      for_each_kept_vector<S>(rule, token, args.columns, [&](int64_t c, auto lanes, uint32_t bits) {
        S::store(y + c, S::load(x + c, lanes) * S::keep(S::set(rule.scale), bits), lanes);
      });
    } else {
      for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) { S::store(y + c, S::load(x + c, lanes), lanes); });
    }
  }
}

}  // namespace
}  // namespace strake::kernels
