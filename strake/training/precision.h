#pragma once

#include <c10/core/ScalarType.h>

namespace strake::training {

// What numbers are stored in: parameters and activations, gradients on their way, sums of gradients.
enum class Precision { kFp32, kBf16, kFp16 };

constexpr at::ScalarType scalar_type(Precision precision) {
  return precision == Precision::kBf16 ? at::kBFloat16 : precision == Precision::kFp16 ? at::kHalf : at::kFloat;
}

constexpr const char* to_string(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : precision == Precision::kFp16 ? "fp16" : "fp32";
}

constexpr int64_t element_size(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

}  // namespace strake::training
