#pragma once

#include "strake/kernels/cross_entropy_rungs.h"
#include "strake/kernels/simd/lanes.h"
#include "strake/kernels/simd/math.h"

namespace strake::kernels {
namespace {

template <class S, class T>
inline float largest_of(const T* x, int64_t classes) {
  typename S::Float largest = S::set(-kInfinity);
  const int64_t whole = classes / S::kLanes * S::kLanes;
  for (int64_t c = 0; c < whole; c += S::kLanes) largest = S::max(largest, S::load(x + c));
  float result = S::maximum(largest);
  for (int64_t c = whole; c < classes; ++c) {
    const float value = S::sum(S::load(x + c, Part{1}));
    result = value > result ? value : result;
  }
  return result;
}

// Sum of term(x) in blocks, whose sums are added up then: a single sum over a whole vocabulary would lose digits.
template <class S, class T, class Term>
inline float sum_of(const T* x, int64_t classes, const Term& term) {
  using Float = typename S::Float;
  constexpr int64_t kBlock = 1024;
  Float total = S::zero();
  for (int64_t begin = 0; begin < classes; begin += kBlock) {
    Float sum = S::zero();
    for_each_vector<S>(smaller(kBlock, classes - begin), [&](int64_t c, auto lanes) {
      sum = sum + S::first(term(S::load(x + begin + c, lanes)), lanes);
    });
    total = total + sum;
  }
  return S::sum(total);
}

// How far the logits that are expected are below the largest: the target's, or with smoothing the mean of all, too.
template <class S, class T>
inline typename S::Float smoothed(const CrossEntropyArgs<T>& args, const T* x, float largest,
                                  typename S::Float of_target) {
  using Float = typename S::Float;
  if (args.smoothing == 0) return of_target;
  const float sum = sum_of<S>(x, args.classes, [&](Float value) { return S::set(largest) - value; });
  const float of_all = args.smoothing * (sum / static_cast<float>(args.classes));
  return S::set(1.0F - args.smoothing) * of_target + S::set(of_all);
}

template <class S, class T>
void cross_entropy_range(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end) {
  using Float = typename S::Float;
  for (int64_t token = begin; token < end; ++token) {
    const T* const x = args.logits + token * args.stride;
    const int32_t target = args.targets[token];
    const float largest = largest_of<S>(x, args.classes);
    const float sum = sum_of<S>(x, args.classes, [&](Float value) { return exp<S>(value - S::set(largest)); });
    const Float below_largest = S::set(largest) - S::set(S::sum(S::load(x + target, Part{1})));
    S::store(args.nll + token, log<S>(S::set(sum)) + smoothed<S>(args, x, largest, below_largest), Part{1});
    if (args.gradient == nullptr) continue;
    T* const gradient = args.gradient + token * args.stride;
    const Float inverse = S::set(1.0F / sum);
    const Float scale = S::set(args.scale);
    const float share = args.smoothing / static_cast<float>(args.classes);
    const Float of_each = S::set(share);
    const Float expected = S::set(1.0F - args.smoothing + share);
    const Float of_target = (exp<S>(S::zero() - below_largest) * inverse - expected) * scale;
    for_each_vector<S>(args.classes, [&](int64_t c, auto lanes) {
      const Float probability = exp<S>(S::load(x + c, lanes) - S::set(largest)) * inverse;
      S::store(gradient + c, (probability - of_each) * scale, lanes);
    });
    S::store(gradient + target, of_target, Part{1});
  }
}

}  // namespace
}  // namespace strake::kernels
