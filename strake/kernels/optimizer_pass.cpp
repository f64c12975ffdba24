#include "strake/kernels/optimizer_pass.h"

#include <cmath>
#include <vector>

#include "strake/core/threads.h"
#include "strake/kernels/cuda/call.h"
#include "strake/kernels/cuda/on_cuda.h"
#include "strake/kernels/flat_runs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<OptimizerPassRung, 3> kLadder{&avx512::kOptimizerPass, &avx2::kOptimizerPass,
                                               &reference::kOptimizerPass};

constexpr int64_t kGrain = 16384;  // elements

struct Elements {
  int64_t begin, end;  // of the flat buffer
};

// Calls use(run, weight decay) for the runs of elements with one weight decay: tensors, or what lies between them.
template <class Use>
void for_each_run(std::span<const TensorSegment> segments, const Elements& elements, const Use& use) {
  for_each_part(segments, elements.begin, elements.end, [&](int64_t first, int64_t last, int64_t segment) {
    const double decay = segment < 0 ? 0 : segments[static_cast<size_t>(segment)].weight_decay;
    use(Elements{first, last}, decay);
  });
}

// Updates the window with factors_of(weight decay).
template <class Factors, class FactorsOf>
void pass(const FlatWindow& window, const UpdateStep& step, PassFunction<Factors> update, const FactorsOf& factors_of) {
  parallel_for(window.count, kGrain, [&](int64_t first, int64_t last) {
    for_each_run(window.segments, {window.begin + first, window.begin + last}, [&](const Elements& run, double decay) {
      update(run_of(window, step, run.begin, run.end), factors_of(decay));
    });
  });
}

// The window's runs, of which neighbours with one weight decay become one part: a device is done sooner with few.
template <class Factors, class FactorsOf>
std::vector<cuda::PassPart<Factors>> parts_of(const FlatWindow& window, const FactorsOf& factors_of) {
  std::vector<cuda::PassPart<Factors>> parts;
  double decay_before = 0;
  for_each_run(window.segments, {window.begin, window.begin + window.count}, [&](const Elements& run, double decay) {
    const int64_t end = run.end - window.begin;
    if (!parts.empty() && decay == decay_before) {
      parts.back().end = end;
    } else {
      parts.push_back({run.begin - window.begin, end, factors_of(decay)});
    }
    decay_before = decay;
  });
  return parts;
}

// The same on a device, which takes many parts at once: starting work there costs more than updating a small tensor.
template <class Factors, class FactorsOf>
void pass(const FlatWindow& window, const UpdateStep& step, cuda::CudaPassFunction<Factors> update,
          const FactorsOf& factors_of, const OnCuda& place) {
  const auto parts = parts_of<Factors>(window, factors_of);
  cuda::check(*place.table, update(whole_of(window, step), parts.data(), std::ssize(parts), place.stream), "optimizer");
}

float narrow(double value) { return static_cast<float>(value); }

// Each checks its arguments and returns a function from the weight decay to the factors.
auto adam_factors(const FlatWindow& window, const UpdateStep& step, const Adam& rule) {
  check_window(window, step, rule.amsgrad ? 3 : 2);
  const auto t = static_cast<double>(step.number);
  const double first_correction = rule.bias_correction ? 1 - std::pow(rule.beta1, t) : 1;
  const double second_correction = rule.bias_correction ? 1 - std::pow(rule.beta2, t) : 1;
  const bool decoupled = rule.weight_decay == WeightDecay::kDecoupled;
  return [=, learning_rate = step.learning_rate](double decay) {
    return AdamFactors{.beta1 = narrow(rule.beta1),
                       .one_minus_beta1 = narrow(1 - rule.beta1),
                       .beta2 = narrow(rule.beta2),
                       .one_minus_beta2 = narrow(1 - rule.beta2),
                       .step_size = narrow(learning_rate / first_correction),
                       .denominator_factor = narrow(1 / std::sqrt(second_correction)),
                       .epsilon = narrow(rule.epsilon),
                       .shrink = decoupled ? narrow(1 - learning_rate * decay) : 1.0F,
                       .gradient_decay = decoupled ? 0.0F : narrow(decay)};
  };
}

auto adagrad_factors(const FlatWindow& window, const UpdateStep& step, const Adagrad& rule) {
  check_window(window, step, 1);
  const double rate = step.learning_rate / (1 + static_cast<double>(step.number - 1) * rule.lr_decay);
  return [=](double decay) {
    return AdagradFactors{.step_size = narrow(rate), .epsilon = narrow(rule.epsilon), .gradient_decay = narrow(decay)};
  };
}

auto lion_factors(const FlatWindow& window, const UpdateStep& step, const Lion& rule) {
  check_window(window, step, 1);
  return [=, learning_rate = step.learning_rate](double decay) {
    return LionFactors{.beta1 = narrow(rule.beta1),
                       .one_minus_beta1 = narrow(1 - rule.beta1),
                       .beta2 = narrow(rule.beta2),
                       .one_minus_beta2 = narrow(1 - rule.beta2),
                       .step_size = narrow(learning_rate),
                       .shrink = narrow(1 - learning_rate * decay)};
  };
}

auto sgd_factors(const FlatWindow& window, const UpdateStep& step, const Sgd& rule) {
  check_window(window, step, rule.momentum == 0 ? 0 : 1);
  return [=, share = step.number == 1 ? 1.0F : narrow(1 - rule.dampening),
          learning_rate = step.learning_rate](double decay) {
    return SgdFactors{.momentum = narrow(rule.momentum),
                      .share = share,
                      .step_size = narrow(learning_rate),
                      .gradient_decay = narrow(decay),
                      .nesterov = rule.nesterov};
  };
}

// The largest second moment is there for AMSGrad alone.
FlatWindow window_of(const FlatWindow& window, const Adam& rule) {
  FlatWindow used = window;
  if (!rule.amsgrad) used.states[2] = {};
  return used;
}

// Without momentum there is no state.
FlatWindow window_of(const FlatWindow& window, const Sgd& rule) {
  FlatWindow used = window;
  if (rule.momentum == 0) used.states[0] = {};
  return used;
}

}  // namespace

void adam(const FlatWindow& window, const UpdateStep& step, const Adam& rule, Isa highest) {
  const auto factors_of = adam_factors(window, step, rule);
  pass(window_of(window, rule), step, function_for(window, pick(kLadder, highest).adam), factors_of);
}
void adam(const FlatWindow& window, const UpdateStep& step, const Adam& rule, const OnCuda& place) {
  const auto factors_of = adam_factors(window, step, rule);
  pass(window_of(window, rule), step, function_for(window, place.table->adam), factors_of, place);
}

void adagrad(const FlatWindow& window, const UpdateStep& step, const Adagrad& rule, Isa highest) {
  pass(window, step, function_for(window, pick(kLadder, highest).adagrad), adagrad_factors(window, step, rule));
}
void adagrad(const FlatWindow& window, const UpdateStep& step, const Adagrad& rule, const OnCuda& place) {
  pass(window, step, function_for(window, place.table->adagrad), adagrad_factors(window, step, rule), place);
}

void lion(const FlatWindow& window, const UpdateStep& step, const Lion& rule, Isa highest) {
  pass(window, step, function_for(window, pick(kLadder, highest).lion), lion_factors(window, step, rule));
}
void lion(const FlatWindow& window, const UpdateStep& step, const Lion& rule, const OnCuda& place) {
  pass(window, step, function_for(window, place.table->lion), lion_factors(window, step, rule), place);
}

void sgd(const FlatWindow& window, const UpdateStep& step, const Sgd& rule, Isa highest) {
  const auto factors_of = sgd_factors(window, step, rule);
  pass(window_of(window, rule), step, function_for(window, pick(kLadder, highest).sgd), factors_of);
}
void sgd(const FlatWindow& window, const UpdateStep& step, const Sgd& rule, const OnCuda& place) {
  const auto factors_of = sgd_factors(window, step, rule);
  pass(window_of(window, rule), step, function_for(window, place.table->sgd), factors_of, place);
}

}  // namespace strake::kernels
