#include <algorithm>
#include <cmath>
#include <limits>

#include "strake/kernels/cross_entropy_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
void run(const CrossEntropyArgs<T>& args, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    const T* const x = args.logits + token * args.stride;
    const int32_t target = args.targets[token];
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < args.classes; ++c) largest = std::max(largest, to_float(x[c]));
    double sum = 0;
    double below_largest = 0;
    for (int64_t c = 0; c < args.classes; ++c) {
      sum += std::exp(to_float(x[c]) - largest);
      below_largest += largest - to_float(x[c]);
    }
    const float of_target = largest - to_float(x[target]);
    const auto of_classes = static_cast<float>(below_largest / static_cast<double>(args.classes));
    const float smoothed =
        args.smoothing == 0 ? of_target : (1 - args.smoothing) * of_target + args.smoothing * of_classes;
    args.nll[token] = static_cast<float>(std::log(sum)) + smoothed;
    if (args.gradient == nullptr) continue;
    T* const gradient = args.gradient + token * args.stride;
    const float inverse = 1.0F / static_cast<float>(sum);
    const float of_each = args.smoothing / static_cast<float>(args.classes);
    for (int64_t c = 0; c < args.classes; ++c) {
      const float probability = std::exp(to_float(x[c]) - largest) * inverse;
      gradient[c] = from_float<T>(args.scale * (probability - of_each - (c == target ? 1.0F - args.smoothing : 0.0F)));
    }
  }
}

}  // namespace

const CrossEntropyRung<float> kCrossEntropyFloat{Isa::kReference, &run<float>};
const CrossEntropyRung<BFloat16> kCrossEntropyBFloat16{Isa::kReference, &run<BFloat16>};
const CrossEntropyRung<Half> kCrossEntropyHalf{Isa::kReference, &run<Half>};

}  // namespace strake::kernels::reference
