#include "strake/kernels/optimizer_pass.h"

#include <cmath>

#include "strake/core/threads.h"
#include "strake/kernels/flat_runs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<OptimizerPassRung, 3> kLadder{&avx512::kOptimizerPass, &avx2::kOptimizerPass,
                                               &reference::kOptimizerPass};

constexpr int64_t kGrain = 16384;  // elements

// Updates the window with factors_of(weight decay).
template <class Factors, class FactorsOf>
void pass(const FlatWindow& window, const UpdateStep& step, PassFunction<Factors> update, const FactorsOf& factors_of) {
  parallel_for(window.count, kGrain, [&](int64_t first, int64_t last) {
    for_each_part(window.segments, window.begin + first, window.begin + last,
                  [&](int64_t begin, int64_t end, int64_t segment) {
                    const double decay = segment < 0 ? 0 : window.segments[static_cast<size_t>(segment)].weight_decay;
                    const Factors factors = factors_of(decay);
                    update(run_of(window, step, begin, end), factors);
                  });
  });
}

float narrow(double value) { return static_cast<float>(value); }

}  // namespace

void adam(const FlatWindow& window, const UpdateStep& step, const Adam& rule, Isa highest) {
  check_window(window, step, 2);
  const auto t = static_cast<double>(step.number);
  const double first_correction = rule.bias_correction ? 1 - std::pow(rule.beta1, t) : 1;
  const double second_correction = rule.bias_correction ? 1 - std::pow(rule.beta2, t) : 1;
  const bool decoupled = rule.weight_decay == WeightDecay::kDecoupled;
  const auto factors_of = [&](double decay) {
    return AdamFactors{.beta1 = narrow(rule.beta1),
                       .one_minus_beta1 = narrow(1 - rule.beta1),
                       .beta2 = narrow(rule.beta2),
                       .one_minus_beta2 = narrow(1 - rule.beta2),
                       .step_size = narrow(step.learning_rate / first_correction),
                       .denominator_factor = narrow(1 / std::sqrt(second_correction)),
                       .epsilon = narrow(rule.epsilon),
                       .shrink = decoupled ? narrow(1 - step.learning_rate * decay) : 1.0F,
                       .gradient_decay = decoupled ? 0.0F : narrow(decay)};
  };
  pass(window, step, pick(kLadder, highest).adam[table_place(window)], factors_of);
}

void adagrad(const FlatWindow& window, const UpdateStep& step, const Adagrad& rule, Isa highest) {
  check_window(window, step, 1);
  const double rate = step.learning_rate / (1 + static_cast<double>(step.number - 1) * rule.lr_decay);
  const auto factors_of = [&](double decay) {
    return AdagradFactors{.step_size = narrow(rate), .epsilon = narrow(rule.epsilon), .gradient_decay = narrow(decay)};
  };
  pass(window, step, pick(kLadder, highest).adagrad[table_place(window)], factors_of);
}

void lion(const FlatWindow& window, const UpdateStep& step, const Lion& rule, Isa highest) {
  check_window(window, step, 1);
  const auto factors_of = [&](double decay) {
    return LionFactors{.beta1 = narrow(rule.beta1),
                       .one_minus_beta1 = narrow(1 - rule.beta1),
                       .beta2 = narrow(rule.beta2),
                       .one_minus_beta2 = narrow(1 - rule.beta2),
                       .step_size = narrow(step.learning_rate),
                       .shrink = narrow(1 - step.learning_rate * decay)};
  };
  pass(window, step, pick(kLadder, highest).lion[table_place(window)], factors_of);
}

void sgd(const FlatWindow& window, const UpdateStep& step, const Sgd& rule, Isa highest) {
  check_window(window, step, rule.momentum == 0 ? 0 : 1);
  FlatWindow used = window;
  if (rule.momentum == 0) used.states[0] = {};
  const auto factors_of = [&](double decay) {
    return SgdFactors{.momentum = narrow(rule.momentum),
                      .share = step.number == 1 ? 1.0F : narrow(1 - rule.dampening),
                      .step_size = narrow(step.learning_rate),
                      .gradient_decay = narrow(decay),
                      .nesterov = rule.nesterov};
  };
  pass(used, step, pick(kLadder, highest).sgd[table_place(window)], factors_of);
}

}  // namespace strake::kernels
