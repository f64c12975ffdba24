#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

namespace strake::kernels {

template <typename T>
struct ColumnSumArgs {
  const T* x = nullptr;  // [tokens, columns]
  int64_t stride = 0;    // elements from one token to the next; 0: columns
  float* out = nullptr;  // [columns], overwritten
  int64_t tokens = 0;
  int64_t columns = 0;
};

// out = sum of x over tokens (the gradient of a bias): fp32, in an order that does not depend on the thread count.
// T is float, BFloat16 or Half.
template <typename T>
void column_sum(const ColumnSumArgs<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
