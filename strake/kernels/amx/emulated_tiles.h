#pragma once

#include <cstdint>
#include <cstring>

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
      auto sums = row_of<int32_t>(kSum, i);
      const auto as = row_of<int8_t>(kA, i);
      for (int k = 0; k < kSide; ++k) {
        const auto bs = row_of<int8_t>(kB, k);
        for (int j = 0; j < kSide; ++j) {
          for (int byte = 0; byte < 4; ++byte) sums[j] += as[4 * k + byte] * bs[4 * j + byte];
        }
      }
      std::memcpy(tiles_[kSum].bytes[i], &sums, sizeof(sums));
    }
  }
  // Denormal numbers are 0. Even and odd depths are summed apart, then both are added to what was there.
  template <int kSum, int kA, int kB>
  void add_bf16() {
    for (int i = 0; i < kSide; ++i) {
      auto sums = row_of<float>(kSum, i);
      const auto as = row_of<uint32_t>(kA, i);
      Row<float> even{}, odd{};
      for (int k = 0; k < kSide; ++k) {
        const auto bs = row_of<uint32_t>(kB, k);
        const float even_a = upper_half(as[k] << 16);
        const float odd_a = upper_half(as[k]);
        for (int j = 0; j < kSide; ++j) {
          even[j] = __builtin_fmaf(even_a, upper_half(bs[j] << 16), even[j]);
          odd[j] = __builtin_fmaf(odd_a, upper_half(bs[j]), odd[j]);
        }
      }
      for (int j = 0; j < kSide; ++j) sums[j] += even[j] + odd[j];
      std::memcpy(tiles_[kSum].bytes[i], &sums, sizeof(sums));
    }
  }

 private:
  static constexpr int kSide = 16;
  static constexpr int kRowBytes = 64;
  struct Tile {
    char bytes[kSide][kRowBytes];
  };
  // A number of 16 bits, in the upper half of 32.
  static float upper_half(uint32_t bits) {
    return (bits & 0x7F800000U) == 0 ? 0.0F : __builtin_bit_cast(float, bits & 0xFFFF0000U);
  }
  // Not std::array, whose functions other files have, too, for processors with fewer instructions.
  template <typename T>
  struct Row {
    T values[kRowBytes / sizeof(T)];
    T& operator[](int i) { return values[i]; }
    const T& operator[](int i) const { return values[i]; }
  };
  template <typename T>
  Row<T> row_of(int tile, int row) const {
    Row<T> values;
    std::memcpy(&values, tiles_[tile].bytes[row], sizeof(values));
    return values;
  }

  Tile tiles_[8] = {};
};

}  // namespace
}  // namespace strake::kernels
