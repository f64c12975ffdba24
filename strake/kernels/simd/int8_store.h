#pragma once

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

// As RowStore (matmul_store.h).
template <class U, Activation kKind, typename Out, int kRowsAhead = 0>
class Int8RowStore {
 public:
  using S = typename U::Simd;

  Int8RowStore() = default;
  explicit Int8RowStore(const Int8TileResult<Out>& tile)
      : sums_(tile.sums), row_scale_(tile.row_scales), c_(tile.c), stride_(tile.c_stride) {
    for (int v = 0; v < kInt8TileVectors; ++v) {
      scales_[v] = S::load(tile.column_scales + v * S::kLanes);
      bias_[v] = tile.bias == nullptr ? S::zero() : S::load(tile.bias + v * S::kLanes);
    }
  }

  [[gnu::always_inline]] void store_next() {
    static_assert(kInt8TileVectors == 2);
    const typename S::Float row_scale = S::set(*row_scale_);
    if constexpr (kRowsAhead > 0) __builtin_prefetch(c_ + kRowsAhead * stride_, 1);
    typename S::Float values[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const typename S::Float sum = U::sums_as_float(sums_ + v * S::kLanes);
      values[v] = activate<S, kKind, Out>(S::fma(sum, row_scale * scales_[v], bias_[v]));
    }
    S::store_two(c_, values[0], values[1]);
    sums_ += kInt8TileColumns<U>;
    ++row_scale_;
    c_ += stride_;
  }

 private:
  const int32_t* sums_ = nullptr;
  const float* row_scale_ = nullptr;
  Out* c_ = nullptr;
  int64_t stride_ = 0;
  typename S::Float scales_[kInt8TileVectors], bias_[kInt8TileVectors];
};

template <class U, Activation kKind, typename Out>
[[gnu::noinline]] void store_dequantized(const Int8TileResult<Out>& tile) {
  using S = typename U::Simd;
  if (tile.columns == kInt8TileColumns<U>) {
    Int8RowStore<U, kKind, Out> rows(tile);
    for (int64_t r = 0; r < tile.rows; ++r) rows.store_next();
    return;
  }
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

}  // namespace
}  // namespace strake::kernels
