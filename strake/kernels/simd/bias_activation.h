#pragma once

#include <type_traits>

#include "strake/kernels/bias_activation_rungs.h"
#include "strake/kernels/simd/gelu.h"
#include "strake/kernels/simd/lanes.h"
#include "strake/kernels/simd/math.h"

namespace strake::kernels {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216F;  // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

// An activation as a type, for what is compiled for each.
template <Activation kActivation>
struct ActivationOf {
  static constexpr Activation kKind = kActivation;
};

// f(ActivationOf<kind>())
template <class F>
inline auto with_activation(Activation kind, const F& f) {
  switch (kind) {
    case Activation::kGelu:
      return f(ActivationOf<Activation::kGelu>());
    case Activation::kGeluTanh:
      return f(ActivationOf<Activation::kGeluTanh>());
    case Activation::kRelu:
      return f(ActivationOf<Activation::kRelu>());
    case Activation::kSilu:
      return f(ActivationOf<Activation::kSilu>());
    case Activation::kTanh:
      return f(ActivationOf<Activation::kTanh>());
    case Activation::kIdentity:
      break;
  }
  return f(ActivationOf<Activation::kIdentity>());
}

// Of a result that is stored as Out.
template <class S, Activation kKind, class Out>
inline typename S::Float activate(typename S::Float x) {
  using Float = typename S::Float;
  if constexpr (kKind == Activation::kGelu && std::is_same_v<Out, BFloat16>) {
    return gelu_for_bfloat16<S>(x);
  } else if constexpr (kKind == Activation::kGelu) {
    return gelu<S>(x);
  } else if constexpr (kKind == Activation::kGeluTanh) {  // (1 + tanh u) / 2 = sigmoid(2 u)
    const Float twice = x * S::fma(x * x, S::set(kTwoRootTwoOverPi * kGeluCubic), S::set(kTwoRootTwoOverPi));
    return x * sigmoid<S>(twice);
  } else if constexpr (kKind == Activation::kRelu) {
    return S::max(S::zero(), x);
  } else if constexpr (kKind == Activation::kSilu) {
    return x * sigmoid<S>(x);
  } else if constexpr (kKind == Activation::kTanh) {
    return tanh<S>(x);
  } else {
    return x;
  }
}

template <class S, Activation kKind>
inline typename S::Float derivative(typename S::Float x) {
  using Float = typename S::Float;
  const Float one = S::set(1.0F);
  if constexpr (kKind == Activation::kGelu) {
    const Normal<S> n = normal<S>(x);
    return S::fma(x * S::set(0.39894228F), n.density, n.cdf);  // 1 / sqrt(2 pi)
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const Float square = x * x;
    const Float twice = x * S::fma(square, S::set(kTwoRootTwoOverPi * kGeluCubic), S::set(kTwoRootTwoOverPi));
    const Float slope = S::fma(square, S::set(3.0F * kTwoRootTwoOverPi * kGeluCubic), S::set(kTwoRootTwoOverPi));
    const Float s = sigmoid<S>(twice);
    return S::fma(x * slope, s * (one - s), s);
  } else if constexpr (kKind == Activation::kRelu) {
    return S::less_select(S::zero(), x, one, S::zero());
  } else if constexpr (kKind == Activation::kSilu) {
    const Float s = sigmoid<S>(x);
    return s * S::fma(x, one - s, one);
  } else if constexpr (kKind == Activation::kTanh) {
    const Float t = tanh<S>(x);
    return S::fnma(t, t, one);
  } else {
    return one;
  }
}

template <class S, class T, class Lanes>
inline typename S::Float load_biased(const T* x, const T* bias, int64_t c, Lanes lanes) {
  const typename S::Float value = S::load(x + c, lanes);
  return bias == nullptr ? value : value + S::load(bias + c, lanes);
}

template <class S, class T, Activation kKind>
void activation_forward_range(const BiasActivationForward<T>& args, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    const T* const x = args.x + token * args.columns;
    T* const y = args.y + token * args.columns;
    for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
      S::store(y + c, activate<S, kKind, T>(load_biased<S>(x, args.bias, c, lanes)), lanes);
    });
  }
}

template <class S, class T, Activation kKind>
void activation_backward_range(const BiasActivationBackward<T>& args, int64_t begin, int64_t end, float* dbias) {
  for (int64_t token = begin; token < end; ++token) {
    const T* const x = args.x + token * args.columns;
    const T* const dy = args.dy + token * args.columns;
    T* const dx = args.dx + token * args.columns;
    for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
      const typename S::Float d = S::load(dy + c, lanes) * derivative<S, kKind>(load_biased<S>(x, args.bias, c, lanes));
      S::store(dx + c, d, lanes);
      if (dbias != nullptr) S::store(dbias + c, S::load(dbias + c, lanes) + d, lanes);
    });
  }
}

template <class S, class T>
void bias_activation_forward_range(const BiasActivationForward<T>& args, int64_t begin, int64_t end) {
  with_activation(args.activation,
                  [&](auto kind) { activation_forward_range<S, T, decltype(kind)::kKind>(args, begin, end); });
}

template <class S, class T>
void bias_activation_backward_range(const BiasActivationBackward<T>& args, int64_t begin, int64_t end, float* dbias) {
  with_activation(args.activation,
                  [&](auto kind) { activation_backward_range<S, T, decltype(kind)::kKind>(args, begin, end, dbias); });
}

}  // namespace
}  // namespace strake::kernels
