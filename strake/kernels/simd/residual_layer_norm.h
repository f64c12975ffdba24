#pragma once

#include "strake/kernels/residual_layer_norm_rungs.h"
#include "strake/kernels/simd/keep_bits.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// Where sums are kept until they are normalized. A y that takes them is overwritten vector by vector.
template <class T>
inline T* sums_of(const ResidualLayerNormForward<T>& args) {
  return args.sum == nullptr ? args.y : args.sum;
}

// sum = dropout(x) + residual for one token; returns the sum over columns of what was stored.
template <class S, class T>
inline typename S::Float add_residual(const ResidualLayerNormForward<T>& args, const KeepRule& rule, int64_t token) {
  using Float = typename S::Float;
  const T* const x = args.x + token * args.stride;
  const T* const residual = args.residual == nullptr ? nullptr : args.residual + token * args.stride;
  T* const sum = sums_of(args) + token * args.stride;
  Float total = S::zero();
  Float second_total = S::zero();
  const auto plus_residual = [&](int64_t c, auto lanes, Float value) {
    return residual == nullptr ? value : value + S::load(residual + c, lanes);
  };
  const auto finish = [&](int64_t c, auto lanes, Float value) {
    S::store(sum + c, plus_residual(c, lanes, value), lanes);
    total = total + S::load(sum + c, lanes);  // as rounded
  };
  if (rule.active) {
    for_each_kept_vector<S>(rule, token, args.columns, [&](int64_t c, auto lanes, uint32_t bits) {
      finish(c, lanes, S::load(x + c, lanes) * S::keep(S::set(rule.scale), bits));
    });
  } else {
    const auto two = [&](int64_t c) {
      const int64_t second = c + S::kLanes;
      S::store_two(sum + c, plus_residual(c, Full(), S::load(x + c)),
                   plus_residual(second, Full(), S::load(x + second)));
      total = total + S::load(sum + c);
      second_total = second_total + S::load(sum + second);
    };
    for_each_two_vectors<S>(args.columns, two, [&](int64_t c, auto lanes) { finish(c, lanes, S::load(x + c, lanes)); });
  }
  return total + second_total;
}

template <class S, class T>
void residual_layer_norm_forward_range(const ResidualLayerNormForward<T>& args, const KeepRule& rule, int64_t begin,
                                       int64_t end) {
  using Float = typename S::Float;
  const auto columns = static_cast<float>(args.columns);
  for (int64_t token = begin; token < end; ++token) {
    const float mean = S::sum(add_residual<S>(args, rule, token)) / columns;
    const T* const sum = sums_of(args) + token * args.stride;
    Float squares[2] = {S::zero(), S::zero()};
    const auto add_square = [&](int64_t c, auto lanes, Float& to) {
      const Float centred = S::first(S::load(sum + c, lanes) - S::set(mean), lanes);
      to = S::fma(centred, centred, to);
    };
    for_each_two_vectors<S>(
        args.columns,
        [&](int64_t c) {
          add_square(c, Full(), squares[0]);
          add_square(c + S::kLanes, Full(), squares[1]);
        },
        [&](int64_t c, auto lanes) { add_square(c, lanes, squares[0]); });
    const float rstd = 1.0F / __builtin_sqrtf(S::sum(squares[0] + squares[1]) / columns + args.eps);
    T* const y = args.y + token * args.stride;
    const auto normal = [&](int64_t c, auto lanes) {
      const Float n = (S::load(sum + c, lanes) - S::set(mean)) * S::set(rstd);
      return S::fma(n, S::load(args.gamma + c, lanes), S::load(args.beta + c, lanes));
    };
    for_each_two_vectors<S>(
        args.columns, [&](int64_t c) { S::store_two(y + c, normal(c, Full()), normal(c + S::kLanes, Full())); },
        [&](int64_t c, auto lanes) { S::store(y + c, normal(c, lanes), lanes); });
    args.mean[token] = mean;
    args.rstd[token] = rstd;
  }
}

// With n = (sum - mean) rstd and g = dy gamma: dsum = rstd (g - mean(g) - n mean(g n)).
template <class S, class T>
void residual_layer_norm_backward_range(const ResidualLayerNormBackward<T>& args, const KeepRule& rule, int64_t begin,
                                        int64_t end, float* partial) {
  using Float = typename S::Float;
  float* const dgamma = partial;
  float* const dbeta = partial + args.columns;
  for (int64_t token = begin; token < end; ++token) {
    const T* const dy = args.dy + token * args.columns;
    const T* const sum = args.sum + token * args.columns;
    const T* const dsum_in = args.dsum_in == nullptr ? nullptr : args.dsum_in + token * args.columns;
    T* const dsum = args.dsum + token * args.columns;
    T* const dx = args.dx + token * args.columns;
    const Float mean = S::set(args.mean[token]);
    const Float rstd = S::set(args.rstd[token]);
    Float sum_g = S::zero();
    Float sum_gn = S::zero();
    for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
      const Float d = S::load(dy + c, lanes);
      const Float n = (S::load(sum + c, lanes) - mean) * rstd;
      const Float g = d * S::load(args.gamma + c, lanes);
      sum_g = sum_g + g;
      sum_gn = S::fma(g, n, sum_gn);
      S::store(dgamma + c, S::fma(d, n, S::load(dgamma + c, lanes)), lanes);
      S::store(dbeta + c, S::load(dbeta + c, lanes) + d, lanes);
    });
    const auto columns = static_cast<float>(args.columns);
    const Float mean_g = S::set(S::sum(sum_g) / columns);
    const Float mean_gn = S::set(S::sum(sum_gn) / columns);
    const auto gradient = [&](int64_t c, auto lanes) {
      const Float n = (S::load(sum + c, lanes) - mean) * rstd;
      const Float g = S::load(dy + c, lanes) * S::load(args.gamma + c, lanes);
      const Float d = (S::fnma(n, mean_gn, g) - mean_g) * rstd;
      return dsum_in == nullptr ? d : d + S::load(dsum_in + c, lanes);
    };
    if (rule.active) {
      for_each_kept_vector<S>(rule, token, args.columns, [&](int64_t c, auto lanes, uint32_t bits) {
        const Float d = gradient(c, lanes);
        S::store(dsum + c, d, lanes);
        S::store(dx + c, d * S::keep(S::set(rule.scale), bits), lanes);
      });
    } else {
      for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
        const Float d = gradient(c, lanes);
        S::store(dsum + c, d, lanes);
        if (dx != dsum) S::store(dx + c, d, lanes);
      });
    }
  }
}

}  // namespace
}  // namespace strake::kernels
