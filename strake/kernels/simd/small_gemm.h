#pragma once

#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// C[rows, vectors] = or += A[rows, depth] B[depth, vectors], all fp32. B and C are rows of whole vectors; C is cut into
// panels of S::kGemmVectors vectors. A is read element by element, so its strides may be those of a transpose.
struct Gemm {
  const float* a;
  int64_t a_row;    // from one row to the next
  int64_t a_depth;  // from one k to the next
  const float* b;
  int64_t b_row;
  int64_t b_panel;  // from one panel of B to the next
  float* c;
  int64_t c_row;
  int64_t rows;
  int64_t vectors;
  int64_t depth;
};

enum class Into { kOverwrite, kAdd };

template <class S, Into kInto, int kRows, int kVectors>
[[gnu::noinline]] void gemm_tile(const Gemm& g, const float* a, const float* b, float* c) {
  typename S::Float sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kInto == Into::kAdd ? S::load(c + r * g.c_row + v * S::kLanes) : S::zero();
    }
  }
  const int64_t a_row = g.a_row;
  const int64_t a_depth = g.a_depth;
  const int64_t b_row = g.b_row;
  for (int64_t k = g.depth; k > 0; --k, a += a_depth, b += b_row) {
    typename S::Float bs[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) bs[v] = S::load(b + v * S::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename S::Float factor = S::set(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = S::fma(factor, bs[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) S::store(c + r * g.c_row + v * S::kLanes, sum[r][v]);
  }
}

// All rows of one panel: full tiles, then one of the remaining height.
template <class S, Into kInto, int kVectors>
inline void gemm_panel(const Gemm& g, const float* b, float* c) {
  int64_t row = 0;
  for (; row + S::kGemmRows <= g.rows; row += S::kGemmRows) {
    gemm_tile<S, kInto, S::kGemmRows, kVectors>(g, g.a + row * g.a_row, b, c + row * g.c_row);
  }
  const float* const a = g.a + row * g.a_row;
  c += row * g.c_row;
  static_assert(S::kGemmRows == 6);
  switch (g.rows - row) {
    case 5:
      return gemm_tile<S, kInto, 5, kVectors>(g, a, b, c);
    case 4:
      return gemm_tile<S, kInto, 4, kVectors>(g, a, b, c);
    case 3:
      return gemm_tile<S, kInto, 3, kVectors>(g, a, b, c);
    case 2:
      return gemm_tile<S, kInto, 2, kVectors>(g, a, b, c);
    case 1:
      return gemm_tile<S, kInto, 1, kVectors>(g, a, b, c);
    default:
      return;
  }
}

template <class S, Into kInto>
inline void gemm(const Gemm& g) {
  const float* b = g.b;
  float* c = g.c;
  int64_t vectors = g.vectors;
  for (; vectors >= S::kGemmVectors; vectors -= S::kGemmVectors) {
    gemm_panel<S, kInto, S::kGemmVectors>(g, b, c);
    b += g.b_panel;
    c += S::kGemmVectors * S::kLanes;
  }
  if (vectors == 1) gemm_panel<S, kInto, 1>(g, b, c);
  if constexpr (S::kGemmVectors == 4) {
    if (vectors == 2) gemm_panel<S, kInto, 2>(g, b, c);
    if (vectors == 3) gemm_panel<S, kInto, 3>(g, b, c);
  }
}

}  // namespace
}  // namespace strake::kernels
