#include "strake/inference/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace strake::inference {
namespace {

constexpr std::array kPrecisionNames{"fp32", "bf16", "int8"};
constexpr std::array<const char*, kLinears> kLinearNames{"attention.qkv", "attention.output", "feed_forward.in",
                                                         "feed_forward.out"};

}  // namespace

const char* to_string(Precision precision) { return kPrecisionNames.at(static_cast<size_t>(precision)); }
const char* to_string(Linear linear) { return kLinearNames.at(static_cast<size_t>(linear)); }

std::optional<Linear> parse_linear(std::string_view name) {
  for (size_t i = 0; i < kLinearNames.size(); ++i) {
    if (name == kLinearNames.at(i)) return static_cast<Linear>(i);
  }
  return std::nullopt;
}

std::string LinearName::text() const { return fmt::format("layer {} {}", layer, to_string(linear)); }

bool PrecisionPlan::computes_in_int8(const LinearName& name) const {
  return precision == Precision::kInt8 && std::ranges::find(bf16_linears, name) == bf16_linears.end();
}

}  // namespace strake::inference
