#pragma once

#include "strake/kernels/cuda/attention_tiles.cuh"
#include "tensor_core.cuh"

// Products of a warp's kRowsOfWarp rows with a tile: for 16-bit elements on tensor cores with fp32 sums, for fp32 by
// fused multiply-adds. Both leave results where a tensor core does, so that the kernels around them are the same.
namespace strake::kernels::cuda {

// A warp's [kRowsOfWarp, kColumns] fp32 numbers: at[n][i] is row row_of(i), column column_of(n, i).
template <int kColumns>
struct Fragment {
  static constexpr int kCount = kColumns / 8;
  float at[kCount][4];
};
__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int first_row_of_warp() { return static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp; }
__device__ inline int row_of(int i) { return lane_of_warp() / 4 + 8 * (i / 2); }
__device__ inline int column_of(int n, int i) { return 8 * n + 2 * (lane_of_warp() % 4) + i % 2; }

template <typename Size, typename T>
struct WarpProducts {
  // The warp's rows of a tile, whose place is free as soon as all warps have theirs.
  static constexpr bool kHoldsRows = true;
  class Left {
   public:
    __device__ explicit Left(const Tile<Size>& tile) {
      const int lane = lane_of_warp();
#pragma unroll
      for (int d = 0; d < Size::kDim; d += 16) {
        load_matrices(at_[d / 16], &tile.at[first_row_of_warp() + lane % 16][d + lane / 16 * 8]);
      }
    }

   private:
    friend struct WarpProducts;
    uint32_t at_[Size::kDim / 16][4];
  };

  // products = rows . others^T, of kColumns of the others from row `first` on, and of the first `dim` elements.
  template <int kColumns>
  static __device__ void multiply(const Left& rows, const Tile<Size>& others, int first, int64_t dim,
                                  Fragment<kColumns>& products) {
    products = {};
    const int lane = lane_of_warp();
#pragma unroll
    for (int d = 0; d < Size::kDim; d += 16) {
      if (d >= dim) break;
      const uint32_t(&left)[4] = rows.at_[d / 16];
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 2) {
        uint32_t right[4];
        load_matrices(right, &others.at[first + 8 * n + lane / 16 * 8 + lane % 8][d + lane / 8 % 2 * 8]);
        multiply_add<T>(products.at[n], left, {right[0], right[1]});
        multiply_add<T>(products.at[n + 1], left, {right[2], right[3]});
      }
    }
  }

  // sums += weights . others, of the others' rows from `first` on, weights rounded to T.
  template <int kColumns>
  static __device__ void add(const Fragment<kColumns>& weights, const Tile<Size>& others, int first, int64_t dim,
                             Fragment<Size::kDim>& sums) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int j = 0; j < kColumns; j += 16) {
      const float(&low)[4] = weights.at[j / 8];
      const float(&high)[4] = weights.at[j / 8 + 1];
      const uint32_t left[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]), pack<T>(high[0], high[1]),
                                pack<T>(high[2], high[3])};
#pragma unroll
      for (int d = 0; d < Size::kDim; d += 16) {
        if (d >= dim) break;
        uint32_t right[4];
        load_matrices_transposed(right, &others.at[first + j + lane % 16][d + lane / 16 * 8]);
        multiply_add<T>(sums.at[d / 8], left, {right[0], right[1]});
        multiply_add<T>(sums.at[d / 8 + 1], left, {right[2], right[3]});
      }
    }
  }
};

template <typename Size>
struct WarpProducts<Size, float> {
  // They stay where they are: registers are for sums.
  static constexpr bool kHoldsRows = false;
  class Left {
   public:
    __device__ explicit Left(const Tile<Size>& tile) : tile_(tile) {}

   private:
    friend struct WarpProducts;
    const Tile<Size>& tile_;
  };

  template <int kColumns>
  static __device__ void multiply(const Left& rows, const Tile<Size>& others, int first, int64_t dim,
                                  Fragment<kColumns>& products) {
    products = {};
    for (int d = 0; d < dim; d += Chunk<float>::kCount) {
      Chunk<float> left[2];
      for (int half = 0; half < 2; ++half) left[half] = chunk_at(rows.tile_, first_row_of_warp() + row_of(2 * half), d);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Chunk<float> right = chunk_at(others, first + column_of(n, i), d);
          for (int e = 0; e < Chunk<float>::kCount; ++e) {
            products.at[n][i] = fmaf(left[i / 2].at[e], right.at[e], products.at[n][i]);
          }
        }
      }
    }
  }

  template <int kColumns>
  static __device__ void add(const Fragment<kColumns>& weights, const Tile<Size>& others, int first, int64_t dim,
                             Fragment<Size::kDim>& sums) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int owner = lane_of_warp() / 4 * 4 + j % 8 / 2;
      const float upper = __shfl_sync(0xFFFFFFFFU, weights.at[j / 8][j % 2], owner);
      const float lower = __shfl_sync(0xFFFFFFFFU, weights.at[j / 8][2 + j % 2], owner);
#pragma unroll
      for (int n = 0; n < Size::kDim / 8; ++n) {
        if (8 * n >= dim) break;
        const auto other = *reinterpret_cast<const Pair<float>*>(&others.at[first + j][column_of(n, 0)]);
        for (int i = 0; i < 4; ++i) sums.at[n][i] = fmaf(i < 2 ? upper : lower, other.at[i % 2], sums.at[n][i]);
      }
    }
  }

 private:
  static __device__ Chunk<float> chunk_at(const Tile<Size>& tile, int row, int d) {
    return *reinterpret_cast<const Chunk<float>*>(&tile.at[row][d]);
  }
};

}  // namespace strake::kernels::cuda
