#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "strake/kernels/cuda/emulation/emulation.h"
#include "strake/kernels/half.h"

// What nvcc/tensor_core.cuh has as instructions, by the layouts that it describes.
namespace strake::kernels::cuda {
namespace emulation {

template <typename T>
float half_of(uint32_t word, unsigned which) {
  return to_float(T{static_cast<uint16_t>(word >> (16 * which))});
}

// What a lane has of a product's operands.
struct Operands {
  uint32_t left[4];
  uint32_t right[2];
};
template <typename T>
float left_element(const WarpPointers& warp, unsigned row, unsigned column) {
  const auto& lane = *static_cast<const Operands*>(warp[row % 8 * 4 + column % 8 / 2]);
  return half_of<T>(lane.left[row / 8 + 2 * (column / 8)], column % 2);
}
template <typename T>
float right_element(const WarpPointers& warp, unsigned row, unsigned column) {
  const auto& lane = *static_cast<const Operands*>(warp[column * 4 + row % 8 / 2]);
  return half_of<T>(lane.right[row / 8], row % 2);
}

inline void require_aligned(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
    throw std::logic_error("emulated instruction: an address is not on 16 bytes");
}

inline uint16_t matrix_element(const WarpPointers& rows, unsigned matrix, unsigned row, unsigned column) {
  uint16_t element = 0;
  std::memcpy(&element, static_cast<const char*>(rows[8 * matrix + row]) + column * sizeof(element), sizeof(element));
  return element;
}

}  // namespace emulation

template <typename T>
void multiply_add(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2]) {
  const emulation::Operands own{{left[0], left[1], left[2], left[3]}, {right[0], right[1]}};
  emulation::with_warp(&own, [&](const emulation::WarpPointers& warp) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = emulation::lane() / 4 + 8 * (i / 2);
      const unsigned column = 2 * (emulation::lane() % 4) + i % 2;
      for (unsigned k = 0; k < 16; ++k) {
        sums[i] =
            std::fma(emulation::left_element<T>(warp, row, k), emulation::right_element<T>(warp, k, column), sums[i]);
      }
    }
  });
}

inline void load_matrices(uint32_t (&words)[4], const void* row) {
  emulation::require_aligned(row);
  emulation::with_warp(row, [&](const emulation::WarpPointers& rows) {
    const unsigned g = emulation::lane() / 4, t = emulation::lane() % 4;
    for (unsigned i = 0; i < 4; ++i) {
      words[i] = emulation::matrix_element(rows, i, g, 2 * t) |
                 static_cast<uint32_t>(emulation::matrix_element(rows, i, g, 2 * t + 1)) << 16;
    }
  });
}
inline void load_matrices_transposed(uint32_t (&words)[4], const void* row) {
  emulation::require_aligned(row);
  emulation::with_warp(row, [&](const emulation::WarpPointers& rows) {
    const unsigned g = emulation::lane() / 4, t = emulation::lane() % 4;
    for (unsigned i = 0; i < 4; ++i) {
      words[i] = emulation::matrix_element(rows, i, 2 * t, g) |
                 static_cast<uint32_t>(emulation::matrix_element(rows, i, 2 * t + 1, g)) << 16;
    }
  });
}

inline void copy_beside(void* shared, const void* global, bool there) {
  emulation::require_aligned(shared);
  emulation::require_aligned(global);
  if (there) {
    std::memcpy(shared, global, 16);
  } else {
    std::memset(shared, 0, 16);
  }
}
inline void end_copies() {}
template <int kLater = 0>
void wait_for_copies() {}

template <typename T>
uint32_t pack(float low, float high) {
  return from_float<T>(low).bits | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

}  // namespace strake::kernels::cuda
