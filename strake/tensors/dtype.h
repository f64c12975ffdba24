#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>
#include <string_view>

namespace strake::tensors {

// Element type for a safetensors name such as "F32" or "BF16"; nothing for names torch has no type for.
std::optional<c10::ScalarType> parse_safetensors_dtype(std::string_view name);
const char* safetensors_dtype(c10::ScalarType type);  // Error (kInternal) for types that are never written

// "[2, 3]"
std::string describe_shape(at::IntArrayRef shape);

}  // namespace strake::tensors
