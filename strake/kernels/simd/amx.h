#pragma once

#include <cstdint>

namespace strake::kernels {
namespace {

// Eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);
constexpr TileConfiguration kTileConfiguration{};

// AMX's tiles (simd/tiles.h). The process must have the permission to use them: usable(Isa::kAmx) asks for it.
// Configured anew for each product, because libraries that use AMX leave their own configuration behind.
//
// Written as assembly: the intrinsics of GCC 12 want literal tile numbers, and do not say that loads read memory, which
// lets the compiler drop what was stored for them.
class Amx {
 public:
  Amx() { __asm__ volatile("ldtilecfg %0" ::"m"(kTileConfiguration) : "memory"); }
  ~Amx() { __asm__ volatile("tilerelease" ::: "memory"); }
  Amx(const Amx&) = delete;
  Amx& operator=(const Amx&) = delete;

  template <int kTile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void load_once(const void* from, int64_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  static void add_int8() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  static void add_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace strake::kernels
