#include "strake/kernels/lamb.h"

#include <algorithm>
#include <cmath>

#include "strake/core/threads.h"
#include "strake/kernels/flat_runs.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/lamb_rungs.h"

namespace strake::kernels {
namespace {

constexpr Ladder<LambRung, 3> kLadder{&avx512::kLamb, &avx2::kLamb, &reference::kLamb};

int64_t num_chunks(const TensorSegment& tensor) {
  if (tensor.begin == tensor.end) return 0;
  return (tensor.end - 1) / kSquaresChunk - tensor.begin / kSquaresChunk + 1;
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

void check_chunks(const FlatWindow& window) {
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

}  // namespace

int64_t num_lamb_sums(std::span<const TensorSegment> tensors) {
  int64_t count = 0;
  for (const TensorSegment& tensor : tensors) count += num_chunks(tensor);
  return count;
}

void lamb_moments(const FlatWindow& window, const UpdateStep& step, const Lamb& rule, std::span<LambSums> sums,
                  Isa highest) {
  check_window(window, step, 2);
  check_chunks(window);
  require(std::ssize(sums) == num_lamb_sums(window.segments), ErrorKind::kInternal, "{} sums for {} of LAMB",
          sums.size(), num_lamb_sums(window.segments));
  const auto moments = function_for(window, pick(kLadder, highest).moments);
  const std::vector<int64_t> first = first_sums(window.segments);
  for_each_tensor_part(window, [&](int64_t begin, int64_t end, size_t tensor) {
    const TensorSegment& segment = window.segments[tensor];
    const LambRunSums part = moments(run_of(window, step, begin, end), factors_of(step, rule, segment.weight_decay, 1));
    const int64_t chunk = begin / kSquaresChunk - segment.begin / kSquaresChunk;
    sums[static_cast<size_t>(first[tensor] + chunk)] = {part.parameter, part.update};
  });
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
  check_window(window, step, 2);
  require(coefficients.size() == window.segments.size(), ErrorKind::kInternal, "{} coefficients for {} tensors",
          coefficients.size(), window.segments.size());
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

}  // namespace strake::kernels
