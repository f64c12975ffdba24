#pragma once

#include <optional>

#include "strake/kernels/int8_matmul_rungs.h"
#include "strake/kernels/simd/bias_activation.h"
#include "strake/kernels/simd/lanes.h"

// What becomes of the sums of an int8 product. U is as in int8_matmul.h.
namespace strake::kernels {
namespace {

constexpr int kInt8TileVectors = 2;  // of B, side by side
template <class U>
constexpr int64_t kInt8TileColumns = int64_t{kInt8TileVectors} * U::Simd::kLanes;

// Where a tile's sums go.
template <typename Out>
struct Int8TileResult {
  const int32_t* sums;         // [rows, tile columns]
  const float* row_scales;     // [rows]
  const float* column_scales;  // [tile columns]
  const float* bias;           // [columns], or null
  Out* c;
  int64_t c_stride;
  int64_t rows;
  int64_t columns;
};

template <class U, Activation kKind, typename Out>
inline void store_whole_rows(const Int8TileResult<Out>& tile) {
  using S = typename U::Simd;
  static_assert(kInt8TileVectors == 2);
  const typename S::Float scales[2] = {S::load(tile.column_scales), S::load(tile.column_scales + S::kLanes)};
  typename S::Float bias[2] = {S::zero(), S::zero()};
  if (tile.bias != nullptr) bias[0] = S::load(tile.bias), bias[1] = S::load(tile.bias + S::kLanes);
  const int32_t* sums = tile.sums;
  Out* c = tile.c;
  for (int64_t r = 0; r < tile.rows; ++r, sums += kInt8TileColumns<U>, c += tile.c_stride) {
    const typename S::Float row_scale = S::set(tile.row_scales[r]);
    typename S::Float values[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const typename S::Float sum = U::sums_as_float(sums + v * S::kLanes);
      values[v] = activate<S, kKind, Out>(S::fma(sum, row_scale * scales[v], bias[v]));
    }
    S::store_two(c, values[0], values[1]);
  }
}

template <class U, Activation kKind, typename Out>
[[gnu::noinline]] void store_dequantized(const Int8TileResult<Out>& tile) {
  using S = typename U::Simd;
  if (tile.columns == kInt8TileColumns<U>) return store_whole_rows<U, kKind>(tile);
  const int32_t* sums = tile.sums;
  for (int64_t r = 0; r < tile.rows; ++r, sums += kInt8TileColumns<U>) {
    const typename S::Float row_scale = S::set(tile.row_scales[r]);
    Out* const c = tile.c + r * tile.c_stride;
    for_each_vector<S>(tile.columns, [&](int64_t j, auto lanes) {
      const typename S::Float bias = tile.bias == nullptr ? S::zero() : S::load(tile.bias + j, lanes);
      const typename S::Float value =
          S::fma(U::sums_as_float(sums + j), row_scale * S::load(tile.column_scales + j), bias);
      S::store(c + j, activate<S, kKind, Out>(value), lanes);
    });
  }
}

template <class U, typename Out>
void finish_int8_tile(const Int8TileResult<Out>& tile, const std::optional<Activation>& activation) {
  switch (activation.value_or(Activation::kIdentity)) {
    case Activation::kGelu:
      return store_dequantized<U, Activation::kGelu>(tile);
    case Activation::kGeluTanh:
      return store_dequantized<U, Activation::kGeluTanh>(tile);
    case Activation::kRelu:
      return store_dequantized<U, Activation::kRelu>(tile);
    case Activation::kSilu:
      return store_dequantized<U, Activation::kSilu>(tile);
    case Activation::kTanh:
      return store_dequantized<U, Activation::kTanh>(tile);
    case Activation::kIdentity:
      return store_dequantized<U, Activation::kIdentity>(tile);
  }
}

}  // namespace
}  // namespace strake::kernels
