#include "strake/kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/adamw_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<AdamWRung, 3> kLadder{&avx512::kAdamW, &avx2::kAdamW, &reference::kAdamW};

constexpr int64_t kGrain = 16384;  // elements

void check(const AdamW& args) {
  require(args.step >= 1, ErrorKind::kInternal, "AdamW step {} is below 1", args.step);
  int64_t end = 0;
  for (const WeightDecaySegment& segment : args.decay) {
    require(segment.begin >= end && segment.end >= segment.begin && segment.end <= args.count, ErrorKind::kInternal,
            "weight decay segment [{}, {}) of {} elements is out of order", segment.begin, segment.end, args.count);
    end = segment.end;
  }
}

AdamWFactors factors(const AdamW& args) {
  const auto step = static_cast<double>(args.step);
  return {.beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1 - args.beta2),
          .step_size = static_cast<float>(args.learning_rate / (1 - std::pow(args.beta1, step))),
          .denominator_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(args.beta2, step))),
          .epsilon = static_cast<float>(args.epsilon),
          .gradient_scale = args.gradient_scale};
}

// Calls update(begin, end, weight_decay) for the parts of [begin, end) with one weight decay each.
template <typename Update>
void for_each_segment(const AdamW& args, int64_t begin, int64_t end, const Update& update) {
  auto segment = std::partition_point(args.decay.begin(), args.decay.end(),
                                      [begin](const WeightDecaySegment& s) { return s.end <= begin; });
  while (begin < end) {
    if (segment == args.decay.end() || segment->begin >= end) return update(begin, end, 0.0F);
    if (segment->begin > begin) update(begin, segment->begin, 0.0F);
    const int64_t stop = std::min(end, segment->end);
    const int64_t start = std::max(begin, segment->begin);
    if (start < stop) update(start, stop, segment->weight_decay);
    begin = stop;
    ++segment;
  }
}

}  // namespace

void adamw(const AdamW& args, Isa highest) {
  check(args);
  const AdamWRung& rung = pick(kLadder, highest);
  const AdamWFactors f = factors(args);
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    for_each_segment(args, begin, end, [&](int64_t first, int64_t last, float weight_decay) {
      const auto shrink = static_cast<float>(1 - args.learning_rate * double{weight_decay});
      rung.update(args, f, shrink, first, last);
    });
  });
}

}  // namespace strake::kernels
