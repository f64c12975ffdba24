#pragma once

#include <bit>
#include <cstdint>

namespace strake::kernels {

// Storage type for activations and weights: the upper half of a float. Same layout as at::BFloat16. Its functions, like
// those of Half, are constexpr so that CUDA kernels may call them: one definition, the same bits.
struct BFloat16 {
  uint16_t bits;
};

constexpr float to_float(float x) { return x; }
constexpr float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounds to the nearest, ties to even. Every NaN becomes the one quiet NaN.
constexpr BFloat16 to_bfloat16(float x) {
  if (x != x) return {0x7FC0};
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

template <typename T>
constexpr T from_float(float x);
template <>
constexpr float from_float<float>(float x) {
  return x;
}
template <>
constexpr BFloat16 from_float<BFloat16>(float x) {
  return to_bfloat16(x);
}

}  // namespace strake::kernels
