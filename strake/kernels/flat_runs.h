#pragma once

#include <algorithm>

#include "strake/core/error.h"
#include "strake/kernels/flat_window.h"
#include "strake/kernels/optimizer_pass_rungs.h"

// How the optimizer kernels walk over a window.
namespace strake::kernels {

// Error (kInternal) for what only a mistake of the caller can be.
inline void check_window(const FlatWindow& window, const UpdateStep& step, size_t num_states) {
  require(step.number >= 1, ErrorKind::kInternal, "optimizer step {} is below 1", step.number);
  const bool is_bfloat16 = std::holds_alternative<BFloat16*>(window.parameters);
  for (size_t i = 0; i < num_states; ++i) {
    const bool is_there = std::visit([](auto* state) { return state != nullptr; }, window.states[i]);
    require(is_there || window.count == 0, ErrorKind::kInternal, "optimizer state {} is missing", i);
    require(!is_there || std::holds_alternative<BFloat16*>(window.states[i]) == is_bfloat16, ErrorKind::kInternal,
            "optimizer state {} has another type than the parameters ask for", i);
  }
  const bool is_fp32 = std::holds_alternative<float*>(window.parameters);
  require(is_fp32 || (window.gradients.index() == window.parameters.index() &&
                      std::holds_alternative<std::monostate>(window.rounded)),
          ErrorKind::kInternal, "parameters of 16 bits with gradients of another type, or with rounded copies");
  int64_t end = 0;
  for (const TensorSegment& segment : window.segments) {
    require(segment.begin >= end && segment.end >= segment.begin, ErrorKind::kInternal,
            "tensor segment [{}, {}) is out of order", segment.begin, segment.end);
    end = segment.end;
  }
}

// Calls visit(begin, end, i) for the parts of elements [begin, end) of the flat buffer that lie in segment i, and with
// i = -1 for those that lie in none.
template <typename Visit>
void for_each_part(std::span<const TensorSegment> segments, int64_t begin, int64_t end, const Visit& visit) {
  const auto first = std::partition_point(segments.begin(), segments.end(),
                                          [begin](const TensorSegment& s) { return s.end <= begin; });
  for (auto at = first - segments.begin(); begin < end; ++at) {
    const bool is_last = at == std::ssize(segments) || segments[static_cast<size_t>(at)].begin >= end;
    if (is_last) return visit(begin, end, int64_t{-1});
    const TensorSegment& segment = segments[static_cast<size_t>(at)];
    if (segment.begin > begin) visit(begin, segment.begin, int64_t{-1});
    const int64_t start = std::max(begin, segment.begin);
    const int64_t stop = std::min(end, segment.end);
    if (start < stop) visit(start, stop, int64_t{at});
    begin = std::max(start, stop);
  }
}

// The function for the window in a table of OptimizerPassRung. Error (kInternal) if the rule has none for its types.
template <typename Function, size_t N>
Function function_for(const FlatWindow& window, const Function (&table)[N]) {
  constexpr size_t kAllBFloat16 = 3;
  constexpr size_t kHalfWithFp32States = 4;
  const size_t place = std::holds_alternative<BFloat16*>(window.parameters) ? kAllBFloat16
                       : std::holds_alternative<Half*>(window.parameters)   ? kHalfWithFp32States
                                                                            : window.gradients.index();
  require(place < N, ErrorKind::kInternal, "the optimizer has no kernel for parameters of fp16");
  return table[place];
}

// The run of elements [begin, end) of the flat buffer.
inline PassRun run_of(const FlatWindow& window, const UpdateStep& step, int64_t begin, int64_t end) {
  const int64_t offset = begin - window.begin;
  const auto at = [offset](auto* pointer) { return pointer == nullptr ? nullptr : pointer + offset; };
  const auto any = [&](const auto& pointers) {
    return std::visit([&](auto* pointer) -> void* { return at(pointer); }, pointers);
  };
  const auto* bfloat16 = std::get_if<BFloat16*>(&window.rounded);
  const auto* half = std::get_if<Half*>(&window.rounded);
  return {.parameters = any(window.parameters),
          .gradients = any(window.gradients),
          .first = any(window.states[0]),
          .second = any(window.states[1]),
          .third = any(window.states[2]),
          .bfloat16 = bfloat16 == nullptr ? nullptr : at(*bfloat16),
          .half = half == nullptr ? nullptr : at(*half),
          .count = end - begin,
          .gradient_scale = step.gradient_scale,
          .zeroes_gradients = step.gradients == AfterUse::kZero};
}

// The window as one run, as devices take it.
inline PassRun whole_of(const FlatWindow& window, const UpdateStep& step) {
  return run_of(window, step, window.begin, window.begin + window.count);
}

}  // namespace strake::kernels
