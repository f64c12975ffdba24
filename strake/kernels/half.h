#pragma once

#include <bit>
#include <cstdint>

#include "strake/kernels/bfloat16.h"

namespace strake::kernels {

// IEEE 754 binary16. Same layout as at::Half.
struct Half {
  uint16_t bits;
};

constexpr float to_float(Half x) {
  const uint32_t sign = (uint32_t{x.bits} & 0x8000U) << 16;
  const uint32_t exponent = (uint32_t{x.bits} >> 10) & 0x1FU;
  const uint32_t mantissa = uint32_t{x.bits} & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t quiet = exponent == 31 && mantissa != 0 ? 0x400000U : 0U;
  const uint32_t wide = exponent == 31 ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13) | quiet);
}

// Rounds to the nearest, ties to even, as the instruction VCVTPS2PH does. From 65520 on it is infinity.
constexpr Half to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t result = 0;
  if (magnitude > 0x7F800000U) {
    result = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  } else if (magnitude >= 0x477FF000U) {
    result = 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: multiples of 2^-24, the spacing of floats at 1/2
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  } else {
    result = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
  }
  return {static_cast<uint16_t>(sign | result)};
}

template <>
constexpr Half from_float<Half>(float x) {
  return to_half(x);
}

}  // namespace strake::kernels
