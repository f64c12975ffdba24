#pragma once

#include <cstdint>

// Products of AMX tiles, over a class Tiles that is the unit which has them: Amx (amx.h) or EmulatedTiles.
//
//   Tiles()                       eight tiles of 16 rows of 64 bytes, of this thread and as long as the object
//   zero<t>()                     tile t = 0
//   load<t>(from, stride)         rows of 64 bytes, `stride` bytes apart
//   load_once<t>(from, stride)    the same, for what is not soon read again
//   store<t>(to, stride)
//   add_int8<c, a, b>()           32-bit c[i][j] += sum over k of 8-bit a[i][k] b[k / 4][4 j + k % 4]
//   add_bf16<c, a, b>()           fp32 c[i][j] += sum over k of bf16 a[i][k] b[k / 2][2 j + k % 2]
namespace strake::kernels {
namespace {

constexpr int64_t kTileSide = 16;      // rows of a tile, and columns of 32 bits
constexpr int64_t kTileRowBytes = 64;  // of depth that a product takes at a time

struct Int8Numbers {
  template <int kSum, int kA, int kB, class Tiles>
  static void add(Tiles& tiles) {
    tiles.template add_int8<kSum, kA, kB>();
  }
};
struct BFloat16Numbers {
  template <int kSum, int kA, int kB, class Tiles>
  static void add(Tiles& tiles) {
    tiles.template add_bf16<kSum, kA, kB>();
  }
};

// The tiles' sums[32, 32] of 32 bits = what they are added to + A B.
struct TiledProduct {
  const void* a;     // 32 rows, or 16 if that is all that is wanted
  int64_t a_stride;  // bytes
  const void* b;     // [units, 32 columns] of 32 bits
  int64_t steps;     // 64 bytes of A's rows, 16 units of B
  const void* sums;  // what A B is added to, or null: 0
  void* leaving;     // where the sums of the product before are stored, or null; they stay if they are `sums`
};

constexpr int64_t kTiledRows = 2 * kTileSide;
constexpr int64_t kTiledColumns = 2 * kTileSide;
constexpr int64_t kTiledRowBytes = kTiledColumns * 4;  // of B and of sums

// Of B, from its first on: 32 KiB, which the first-level cache keeps for the other rows of A. What comes after them
// does not take their place there.
constexpr int64_t kKeptSteps = 16;

template <int kTile>
constexpr int64_t kSumsPlace = kTile / 2 * kTileSide * kTiledRowBytes + kTile % 2 * kTileRowBytes;

// The second half is undefined if only 16 rows were wanted.
template <class Tiles>
[[gnu::always_inline]] inline void store_sums_of(Tiles& tiles, void* to) {
  char* const sums = static_cast<char*>(to);
  tiles.template store<0>(sums + kSumsPlace<0>, kTiledRowBytes);
  tiles.template store<1>(sums + kSumsPlace<1>, kTiledRowBytes);
  tiles.template store<2>(sums + kSumsPlace<2>, kTiledRowBytes);
  tiles.template store<3>(sums + kSumsPlace<3>, kTiledRowBytes);
}

// Four sums, two tiles of A, two of B: each loaded tile is used twice, all sums stay in tiles. B is the operand that
// the other rows of A need again. A tile of sums leaves just before the first product of those that take its place: a
// store waits for the last of its products, and the unit goes on with the other tiles meanwhile.
//
// meanwhile(place) is called behind each of a step's products, with 0 to 3, or with 0, 1 and 3 where there are but two
// of them: vectors work while the unit multiplies. have_left() is called once, as soon as `leaving` has been written.
template <class Numbers, bool kTwoRows, class Tiles, class Meanwhile, class HaveLeft>
[[gnu::always_inline]] inline void multiply_tiles(Tiles& tiles, const TiledProduct& product, Meanwhile&& meanwhile,
                                                  HaveLeft&& have_left) {
  const char* a = static_cast<const char*>(product.a);
  const char* b = static_cast<const char*>(product.b);
  const char* const sums = static_cast<const char*>(product.sums);
  char* const leaving = static_cast<char*>(product.leaving);
  const bool stay = sums != nullptr && sums == leaving;
  const auto exchange = [&]<int kTile>() __attribute__((always_inline)) {
    if (stay) return;
    if (leaving != nullptr) tiles.template store<kTile>(leaving + kSumsPlace<kTile>, kTiledRowBytes);
    if (sums != nullptr) {
      tiles.template load<kTile>(sums + kSumsPlace<kTile>, kTiledRowBytes);
    } else {
      tiles.template zero<kTile>();
    }
  };
  const auto load_b = [&]<int kTile, bool kKept>(const char* from) __attribute__((always_inline)) {
    if constexpr (kKept) {
      tiles.template load<kTile>(from, kTiledRowBytes);
    } else {
      tiles.template load_once<kTile>(from, kTiledRowBytes);
    }
  };
  const auto multiply_step = [&]<bool kKept, bool kFirst>() __attribute__((always_inline)) {
    if constexpr (kFirst) exchange.template operator()<0>();
    load_b.template operator()<6, kKept>(b);
    tiles.template load_once<4>(a, product.a_stride);
    Numbers::template add<0, 4, 6>(tiles);
    meanwhile(0);
    if constexpr (kFirst) exchange.template operator()<1>();
    load_b.template operator()<7, kKept>(b + kTileRowBytes);
    Numbers::template add<1, 4, 7>(tiles);
    meanwhile(1);
    if constexpr (kFirst) exchange.template operator()<2>();
    if constexpr (kTwoRows) {
      tiles.template load_once<5>(a + kTileSide * product.a_stride, product.a_stride);
      Numbers::template add<2, 5, 6>(tiles);
      meanwhile(2);
    }
    if constexpr (kFirst) exchange.template operator()<3>();
    if constexpr (kTwoRows) Numbers::template add<3, 5, 7>(tiles);
    meanwhile(3);
    a += kTileRowBytes;
    b += kTileSide * kTiledRowBytes;
  };
  if (product.steps == 0) {
    exchange.template operator()<0>();
    exchange.template operator()<1>();
    exchange.template operator()<2>();
    exchange.template operator()<3>();
    return have_left();
  }
  multiply_step.template operator()<true, true>();
  have_left();
  const int64_t kept = product.steps < kKeptSteps ? product.steps : kKeptSteps;
  for (int64_t step = 1; step < kept; ++step) multiply_step.template operator()<true, false>();
  for (int64_t step = kept; step < product.steps; ++step) multiply_step.template operator()<false, false>();
}

}  // namespace
}  // namespace strake::kernels
