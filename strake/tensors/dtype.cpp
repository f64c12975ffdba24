#include "strake/tensors/dtype.h"

#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "strake/core/error.h"

namespace strake::tensors {
namespace {

constexpr std::array<std::pair<std::string_view, c10::ScalarType>, 11> kNames{{{"F32", c10::kFloat},
                                                                               {"BF16", c10::kBFloat16},
                                                                               {"F16", c10::kHalf},
                                                                               {"F64", c10::kDouble},
                                                                               {"I64", c10::kLong},
                                                                               {"I32", c10::kInt},
                                                                               {"I16", c10::kShort},
                                                                               {"I8", c10::kChar},
                                                                               {"U8", c10::kByte},
                                                                               {"BOOL", c10::kBool},
                                                                               {"C64", c10::kComplexFloat}}};

}  // namespace

std::optional<c10::ScalarType> parse_safetensors_dtype(std::string_view name) {
  for (const auto& [text, type] : kNames) {
    if (text == name) return type;
  }
  return std::nullopt;
}

const char* safetensors_dtype(c10::ScalarType type) {
  for (const auto& [text, known] : kNames) {
    if (known == type) return text.data();
  }
  fail(ErrorKind::kInternal, "element type {} has no safetensors name", c10::toString(type));
}

std::string describe_shape(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace strake::tensors
