#include "strake/kernels/lamb.h"

#include <algorithm>
#include <cmath>

#include "strake/core/threads.h"
#include "strake/kernels/cuda/call.h"
#include "strake/kernels/cuda/on_cuda.h"
#include "strake/kernels/flat_runs.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/lamb_rungs.h"

namespace strake::kernels {
namespace {

constexpr Ladder<LambRung, 3> kLadder{&avx512::kLamb, &avx2::kLamb, &reference::kLamb};

// Of the tensor's sums, that over the chunk with this element.
int64_t chunk_of(const TensorSegment& tensor, int64_t element) {
  return element / kSquaresChunk - tensor.begin / kSquaresChunk;
}

int64_t num_chunks(const TensorSegment& tensor) {
  if (tensor.begin == tensor.end) return 0;
  return chunk_of(tensor, tensor.end - 1) + 1;
}

// Where each tensor's sums begin.
std::vector<int64_t> first_sums(std::span<const TensorSegment> tensors) {
  std::vector<int64_t> first;
  int64_t next = 0;
  for (const TensorSegment& tensor : tensors) {
    first.push_back(next);
    next += num_chunks(tensor);
  }
  return first;
}

LambFactors factors_of(const UpdateStep& step, const Lamb& rule, double weight_decay, double coefficient) {
  const auto t = static_cast<double>(step.number);
  const double correction =
      rule.bias_correction ? std::sqrt(1 - std::pow(rule.beta2, t)) / (1 - std::pow(rule.beta1, t)) : 1;
  return {.beta1 = static_cast<float>(rule.beta1),
          .one_minus_beta1 = static_cast<float>(1 - rule.beta1),
          .beta2 = static_cast<float>(rule.beta2),
          .one_minus_beta2 = static_cast<float>(1 - rule.beta2),
          .epsilon = static_cast<float>(rule.epsilon),
          .weight_decay = static_cast<float>(weight_decay),
          .step_size = static_cast<float>(step.learning_rate * correction * coefficient)};
}

// That the window can be summed up, into as many sums as its buffer has.
void check_sums(const FlatWindow& window, const UpdateStep& step, std::span<const LambSums> sums) {
  check_window(window, step, 2);
  require(std::ssize(sums) == num_lamb_sums(window.segments), ErrorKind::kInternal, "{} sums for {} of LAMB",
          sums.size(), num_lamb_sums(window.segments));
  if (window.count == 0) return;
  const int64_t end = window.begin + window.count;
  const int64_t last = window.segments.empty() ? 0 : window.segments.back().end;
  require(window.begin % kSquaresChunk == 0 && (end % kSquaresChunk == 0 || end >= last), ErrorKind::kInternal,
          "LAMB window [{}, {}) cuts a chunk of {}", window.begin, end, kSquaresChunk);
}

// Calls visit(begin, end, tensor) for the parts of the window that lie in a tensor and in one chunk, on all threads.
template <typename Visit>
void for_each_tensor_part(const FlatWindow& window, const Visit& visit) {
  parallel_for(num_squares_chunks(window.count), 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t begin = window.begin + c * kSquaresChunk;
      const int64_t end = std::min(begin + kSquaresChunk, window.begin + window.count);
      for_each_part(window.segments, begin, end, [&](int64_t from, int64_t to, int64_t tensor) {
        if (tensor >= 0) visit(from, to, static_cast<size_t>(tensor));
      });
    }
  });
}

// For a device: what the window has of each tensor, with factors(first element, tensor).
template <typename Factors, typename FactorsOfTensor>
std::vector<cuda::PassPart<Factors>> parts_of(const FlatWindow& window, const FactorsOfTensor& factors) {
  std::vector<cuda::PassPart<Factors>> parts;
  for_each_part(
      window.segments, window.begin, window.begin + window.count, [&](int64_t begin, int64_t end, int64_t tensor) {
        if (tensor < 0) return;
        parts.push_back({begin - window.begin, end - window.begin, factors(begin, static_cast<size_t>(tensor))});
      });
  return parts;
}

// That every tensor has its coefficient.
void check_coefficients(const FlatWindow& window, const UpdateStep& step, std::span<const double> coefficients) {
  check_window(window, step, 2);
  require(coefficients.size() == window.segments.size(), ErrorKind::kInternal, "{} coefficients for {} tensors",
          coefficients.size(), window.segments.size());
}

}  // namespace

int64_t num_lamb_sums(std::span<const TensorSegment> tensors) {
  int64_t count = 0;
  for (const TensorSegment& tensor : tensors) count += num_chunks(tensor);
  return count;
}

void lamb_moments(const FlatWindow& window, const UpdateStep& step, const Lamb& rule, std::span<LambSums> sums,
                  Isa highest) {
  check_sums(window, step, sums);
  const auto moments = function_for(window, pick(kLadder, highest).moments);
  const std::vector<int64_t> first = first_sums(window.segments);
  for_each_tensor_part(window, [&](int64_t begin, int64_t end, size_t tensor) {
    const TensorSegment& segment = window.segments[tensor];
    sums[static_cast<size_t>(first[tensor] + chunk_of(segment, begin))] =
        moments(run_of(window, step, begin, end), factors_of(step, rule, segment.weight_decay, 1));
  });
}
void lamb_moments(const FlatWindow& window, const UpdateStep& step, const Lamb& rule, std::span<LambSums> sums,
                  const OnCuda& place) {
  check_sums(window, step, sums);
  const auto moments = function_for(window, place.table->lamb_moments);
  const std::vector<int64_t> first = first_sums(window.segments);
  const auto parts = parts_of<cuda::LambMoments>(window, [&](int64_t begin, size_t tensor) {
    const TensorSegment& segment = window.segments[tensor];
    return cuda::LambMoments{.tensor = factors_of(step, rule, segment.weight_decay, 1),
                             .first_sum = first[tensor] + chunk_of(segment, begin)};
  });
  cuda::check(*place.table, moments(whole_of(window, step), parts.data(), std::ssize(parts), sums.data(), place.stream),
              "LAMB");
}

std::vector<double> lamb_coefficients(std::span<const TensorSegment> tensors, std::span<const LambSums> sums,
                                      const Lamb& rule) {
  require(std::ssize(sums) == num_lamb_sums(tensors), ErrorKind::kInternal, "{} sums for {} of LAMB", sums.size(),
          num_lamb_sums(tensors));
  std::vector<double> coefficients;
  auto next = sums.begin();
  for (const TensorSegment& tensor : tensors) {
    LambSums total;
    for (int64_t c = 0; c < num_chunks(tensor); ++c, ++next) {
      total.parameter += next->parameter;
      total.update += next->update;
    }
    const bool has_ratio = total.parameter != 0 && total.update != 0;
    const double ratio = has_ratio ? std::sqrt(total.parameter) / std::sqrt(total.update) : 1;
    coefficients.push_back(has_ratio ? std::max(std::min(ratio, rule.max_coefficient), rule.min_coefficient) : 1);
  }
  return coefficients;
}

void lamb_apply(const FlatWindow& window, const UpdateStep& step, const Lamb& rule,
                std::span<const double> coefficients, Isa highest) {
  check_coefficients(window, step, coefficients);
  const auto& table = pick(kLadder, highest).apply;
  require(window.parameters.index() < std::size(table), ErrorKind::kInternal, "LAMB has no kernel for fp16 parameters");
  const auto apply = table[window.parameters.index()];
  for_each_tensor_part(window, [&](int64_t begin, int64_t end, size_t tensor) {
    const PassRun run = run_of(window, step, begin, end);
    apply(run, factors_of(step, rule, window.segments[tensor].weight_decay, coefficients[tensor]));
    if (!run.zeroes_gradients) return;
    std::visit(
        [&](auto* gradients) {
          std::fill_n(gradients + (begin - window.begin), run.count, std::decay_t<decltype(*gradients)>{});
        },
        window.gradients);
  });
}
void lamb_apply(const FlatWindow& window, const UpdateStep& step, const Lamb& rule,
                std::span<const double> coefficients, const OnCuda& place) {
  check_coefficients(window, step, coefficients);
  const auto apply = function_for(window, place.table->lamb_apply);
  const auto parts = parts_of<LambFactors>(window, [&](int64_t, size_t tensor) {
    return factors_of(step, rule, window.segments[tensor].weight_decay, coefficients[tensor]);
  });
  cuda::check(*place.table, apply(whole_of(window, step), parts.data(), std::ssize(parts), place.stream), "LAMB");
}

}  // namespace strake::kernels
