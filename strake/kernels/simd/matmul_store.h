#pragma once

#include "strake/kernels/matmul_rungs.h"
#include "strake/kernels/simd/bias_activation.h"
#include "strake/kernels/simd/lanes.h"

// What becomes of the sums of a product.
namespace strake::kernels {
namespace {

constexpr int kTileVectors = 2;  // of B, side by side

// A tile's place in C.
struct TilePlace {
  int64_t row;
  int64_t column;
  int64_t rows;
  int64_t columns;
};

// What is stored for a sum, by the members of MatmulResult. `c` is where.
struct BiasedSum {
  template <class S, typename Out, class Lanes>
  static typename S::Float of(typename S::Float sum, typename S::Float bias, const Out*, Lanes) {
    return sum + bias;
  }
};
struct AddedSum {
  template <class S, typename Out, class Lanes>
  static typename S::Float of(typename S::Float sum, typename S::Float bias, const Out* c, Lanes lanes) {
    return S::load(c, lanes) + (sum + bias);
  }
};
template <Activation kKind>
struct ActivatedSum {  // takes what a stored product would give it
  template <class S, typename Out, class Lanes>
  static typename S::Float of(typename S::Float sum, typename S::Float bias, const Out* c, Lanes) {
    return activate<S, kKind, Out>(S::as_stored(c, sum) + bias);
  }
};

// f(one of the above)
template <typename T, typename Out, class F>
inline void with_value(const MatmulResult<T, Out>& result, const F& f) {
  if (result.activation) {
    return with_activation(*result.activation, [&](auto kind) { f(ActivatedSum<decltype(kind)::kKind>()); });
  }
  if constexpr (sizeof(Out) == sizeof(float)) {
    if (result.store == Store::kAdd) return f(AddedSum());
  }
  f(BiasedSum());
}

// Without a bias -0, which changes no number, not even 0 or -0.
template <class S, typename T, class Lanes = Full>
inline typename S::Float load_bias(const T* bias, int64_t column, Lanes lanes = {}) {
  return bias == nullptr ? S::set(-0.0F) : S::load(bias + column, lanes);
}

// Stores rows of a tile of whole vectors, one after the other, and asks for the places of those that come kRowsAhead
// later, if not 0. Has what that takes by value, so that it is in registers where that is inlined.
template <class S, class Value, typename T, typename Out, int kRowsAhead = 0>
class RowStore {
 public:
  RowStore() = default;
  RowStore(const MatmulResult<T, Out>& result, const TilePlace& at, const float* sums)
      : sums_(sums), c_(result.c + at.row * result.stride + at.column), stride_(result.stride) {
    if (result.product != nullptr) product_ = result.product + at.row * result.stride + at.column;
    for (int v = 0; v < kTileVectors; ++v) bias_[v] = load_bias<S>(result.bias, at.column + v * S::kLanes);
  }

  [[gnu::always_inline]] void store_next() {
    static_assert(kTileVectors == 2);
    const typename S::Float sums[2] = {S::load(sums_), S::load(sums_ + S::kLanes)};
    if constexpr (kRowsAhead > 0) __builtin_prefetch(c_ + kRowsAhead * stride_, 1);
    if (product_ != nullptr) {
      if constexpr (kRowsAhead > 0) __builtin_prefetch(product_ + kRowsAhead * stride_, 1);
      S::store_two(product_, sums[0], sums[1]);
      product_ += stride_;
    }
    S::store_two(c_, Value::template of<S>(sums[0], bias_[0], c_, Full()),
                 Value::template of<S>(sums[1], bias_[1], c_ + S::kLanes, Full()));
    sums_ += kTileVectors * S::kLanes;
    c_ += stride_;
  }

 private:
  const float* sums_ = nullptr;
  Out* c_ = nullptr;
  Out* product_ = nullptr;
  int64_t stride_ = 0;
  typename S::Float bias_[kTileVectors];
};

template <class S, class Value, typename T, typename Out>
[[gnu::noinline]] void store_values(const MatmulResult<T, Out>& result, const TilePlace& at, const float* sums) {
  if (at.columns == kTileVectors * S::kLanes) {
    RowStore<S, Value, T, Out> rows(result, at, sums);
    for (int64_t r = 0; r < at.rows; ++r) rows.store_next();
    return;
  }
  for (int64_t r = 0; r < at.rows; ++r, sums += kTileVectors * S::kLanes) {
    const int64_t begin = (at.row + r) * result.stride + at.column;
    for_each_vector<S>(at.columns, [&](int64_t j, auto lanes) {
      const typename S::Float sum = S::load(sums + j);
      const typename S::Float bias = load_bias<S>(result.bias, at.column + j, lanes);
      if (result.product != nullptr) S::store(result.product + begin + j, sum, lanes);
      Out* const c = result.c + begin + j;
      S::store(c, Value::template of<S>(sum, bias, c, lanes), lanes);
    });
  }
}

template <class S, typename T, typename Out>
void store_sums(const MatmulResult<T, Out>& result, const TilePlace& at, const float* sums) {
  with_value(result, [&](auto value) { store_values<S, decltype(value)>(result, at, sums); });
}

}  // namespace
}  // namespace strake::kernels
