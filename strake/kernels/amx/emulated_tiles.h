#pragma once

#include <cstdint>
#include <cstring>

#include "strake/kernels/bfloat16.h"

namespace strake::kernels {
namespace {

// What the instructions of AMX do (simd/tiles.h), in plain C++: their kernels are tested on processors without them.
class EmulatedTiles {
 public:
  template <int kTile>
  void zero() {
    std::memset(&tiles_[kTile], 0, sizeof(Tile));
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    for (int row = 0; row < kSide; ++row) {
      std::memcpy(tiles_[kTile].bytes[row], static_cast<const char*>(from) + row * stride,
                  sizeof(tiles_[kTile].bytes[row]));
    }
  }
  template <int kTile>
  void load_once(const void* from, int64_t stride) {
    load<kTile>(from, stride);
  }
  template <int kTile>
  void store(void* to, int64_t stride) const {
    for (int row = 0; row < kSide; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, tiles_[kTile].bytes[row], sizeof(tiles_[kTile].bytes[row]));
    }
  }
  template <int kSum, int kA, int kB>
  void add_int8() {
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        auto sum = get<int32_t>(kSum, i, j);
        for (int k = 0; k < 4 * kSide; ++k) {
          sum += get<int8_t>(kA, i, k) * get<int8_t>(kB, k / 4, 4 * j + k % 4);
        }
        std::memcpy(&tiles_[kSum].bytes[i][int64_t{4} * j], &sum, sizeof(sum));
      }
    }
  }
  // Denormal numbers are 0. Even and odd depths are summed apart, then both are added to what was there.
  template <int kSum, int kA, int kB>
  void add_bf16() {
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        float halves[2] = {};
        for (int k = 0; k < 2 * kSide; ++k) {
          const float a = without_denormals(get<BFloat16>(kA, i, k));
          const float b = without_denormals(get<BFloat16>(kB, k / 2, 2 * j + k % 2));
          halves[k % 2] = __builtin_fmaf(a, b, halves[k % 2]);
        }
        const float sum = get<float>(kSum, i, j) + (halves[0] + halves[1]);
        std::memcpy(&tiles_[kSum].bytes[i][int64_t{4} * j], &sum, sizeof(sum));
      }
    }
  }

 private:
  static constexpr int kSide = 16;
  struct Tile {
    char bytes[kSide][64];
  };
  static float without_denormals(BFloat16 x) { return (x.bits & 0x7F80U) == 0 ? 0.0F : to_float(x); }
  template <typename T>
  T get(int tile, int row, int column) const {
    T value;
    std::memcpy(&value, &tiles_[tile].bytes[row][static_cast<size_t>(column) * sizeof(T)], sizeof(T));
    return value;
  }

  Tile tiles_[8] = {};
};

}  // namespace
}  // namespace strake::kernels
