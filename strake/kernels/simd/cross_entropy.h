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

// Sum of exp(x - shift) in blocks, whose sums are added up then: a single sum over a whole vocabulary would lose
// digits.
template <class S, class T>
inline float sum_of_exponentials(const T* x, int64_t classes, float shift) {
  using Float = typename S::Float;
  constexpr int64_t kBlock = 1024;
  Float total = S::zero();
  for (int64_t begin = 0; begin < classes; begin += kBlock) {
    Float sum = S::zero();
    for_each_vector<S>(smaller(kBlock, classes - begin), [&](int64_t c, auto lanes) {
      sum = sum + S::first(exp<S>(S::load(x + begin + c, lanes) - S::set(shift)), lanes);
    });
    total = total + sum;
  }
  return S::sum(total);
}

template <class S, class T>
void cross_entropy_range(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end) {
  using Float = typename S::Float;
  for (int64_t token = begin; token < end; ++token) {
    const T* const x = args.logits + token * args.stride;
    const int32_t target = args.targets[token];
    const float largest = largest_of<S>(x, args.classes);
    const float sum = sum_of_exponentials<S>(x, args.classes, largest);
    const Float below_largest = S::set(largest) - S::set(S::sum(S::load(x + target, Part{1})));
    S::store(args.nll + token, log<S>(S::set(sum)) + below_largest, Part{1});
    if (args.gradient == nullptr) continue;
    T* const gradient = args.gradient + token * args.stride;
    const Float inverse = S::set(1.0F / sum);
    const Float scale = S::set(args.scale);
    const Float of_target = (exp<S>(S::zero() - below_largest) * inverse - S::set(1.0F)) * scale;
    for_each_vector<S>(args.classes, [&](int64_t c, auto lanes) {
      S::store(gradient + c, exp<S>(S::load(x + c, lanes) - S::set(largest)) * inverse * scale, lanes);
    });
    S::store(gradient + target, of_target, Part{1});
  }
}

}  // namespace
}  // namespace strake::kernels
