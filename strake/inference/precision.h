#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strake::inference {

// In which numbers a model computes. kBf16: weights and activations. kInt8: as kBf16, but the four linear layers of
// each encoder layer multiply 8-bit integers (kernels/int8_matmul.h).
enum class Precision { kFp32, kBf16, kInt8 };

const char* to_string(Precision precision);  // "fp32", "bf16", "int8"

// The linear layers of an encoder layer, in the order in which they compute.
enum class Linear { kQkv, kAttentionOutput, kIntermediate, kOutput };
inline constexpr int kLinears = 4;

const char* to_string(Linear linear);  // "attention.qkv", "attention.output", "feed_forward.in", "feed_forward.out"
std::optional<Linear> parse_linear(std::string_view name);

struct LinearName {
  int64_t layer = 0;
  Linear linear = Linear::kQkv;

  auto operator<=>(const LinearName&) const = default;
  std::string text() const;  // "layer 3 attention.qkv"
};

// What an engine is made for.
struct PrecisionPlan {
  // Which forms of its weights an engine for kInt8 keeps.
  enum class Forms { kUsed, kBoth };

  Precision precision = Precision::kFp32;
  std::vector<LinearName> bf16_linears = {};  // of kInt8: computed in bf16 nevertheless
  Forms forms = Forms::kUsed;                 // kBoth, of kInt8 only: bf16_linears can be replaced

  bool computes_in_int8(const LinearName& name) const;
};

}  // namespace strake::inference
