#include "strake/optim/optimizer.h"

#include <cmath>

#include "strake/core/error.h"

namespace strake::optim {
namespace {

using kernels::FlatWindow;
using kernels::LambSums;
using kernels::UpdateStep;

std::vector<Optimizer::State> states_of(const OptimizerSettings& settings) {
  switch (settings.rule) {
    case OptimizerRule::kAdam:
      if (settings.amsgrad) return {{"exp_avg", 0}, {"exp_avg_sq", 0}, {"max_exp_avg_sq", 0}};
      [[fallthrough]];
    case OptimizerRule::kLamb:
      return {{"exp_avg", 0}, {"exp_avg_sq", 0}};
    case OptimizerRule::kAdagrad:
      return {{"sum", static_cast<float>(settings.initial_accumulator_value)}};
    case OptimizerRule::kLion:
      return {{"exp_avg", 0}};
    case OptimizerRule::kSgd:
      if (settings.momentum == 0) return {};
      return {{"momentum_buffer", 0}};
  }
  fail(ErrorKind::kInternal, "unknown optimizer rule {}", static_cast<int>(settings.rule));
}

}  // namespace

void OptimizerSettings::validate() const {
  const auto share = [](double value, const char* name) {
    require(value >= 0 && value < 1, ErrorKind::kConfig, "optimizer: {}={} is not in [0, 1)", name, value);
  };
  const auto at_least_zero = [](double value, const char* name) {
    require(value >= 0 && std::isfinite(value), ErrorKind::kConfig, "optimizer: {}={} must be a number from 0 on", name,
            value);
  };
  share(betas.first, "beta1");
  share(betas.second, "beta2");
  const auto in_fp32 = static_cast<float>(epsilon);
  require(in_fp32 > 0 && std::isfinite(in_fp32), ErrorKind::kConfig,
          "optimizer: eps={} must be positive in fp32, and finite: it divides where there is no gradient", epsilon);
  require(!amsgrad || rule == OptimizerRule::kAdam, ErrorKind::kConfig, "optimizer: amsgrad is of Adam and AdamW only");
  at_least_zero(lr_decay, "lr_decay");
  at_least_zero(initial_accumulator_value, "initial_accumulator_value");
  at_least_zero(min_coefficient, "min_coeff");
  require(max_coefficient >= min_coefficient && std::isfinite(max_coefficient), ErrorKind::kConfig,
          "optimizer: max_coeff={} is below min_coeff={}", max_coefficient, min_coefficient);
  at_least_zero(momentum, "momentum");
  at_least_zero(dampening, "dampening");
  require(!nesterov || (momentum > 0 && dampening == 0), ErrorKind::kConfig,
          "optimizer: nesterov needs a momentum (it is {}) and no dampening (it is {})", momentum, dampening);
}

Optimizer::Optimizer(const OptimizerSettings& settings) : settings_(settings), states_(states_of(settings)) {
  settings_.validate();
}

bool Optimizer::has_betas() const {
  return settings_.rule == OptimizerRule::kAdam || settings_.rule == OptimizerRule::kLamb ||
         settings_.rule == OptimizerRule::kLion;
}

Betas Optimizer::betas_or(const std::optional<Betas>& betas) const {
  require(!betas || has_betas(), ErrorKind::kInternal, "betas for an optimizer that has none");
  return betas.value_or(settings_.betas);
}

kernels::Lamb Optimizer::lamb(const std::optional<Betas>& betas) const {
  require(needs_trust_ratios(), ErrorKind::kInternal, "trust ratios of an optimizer that has none");
  const Betas used = betas_or(betas);
  return {.beta1 = used.first,
          .beta2 = used.second,
          .epsilon = settings_.epsilon,
          .bias_correction = settings_.bias_correction,
          .max_coefficient = settings_.max_coefficient,
          .min_coefficient = settings_.min_coefficient};
}

void Optimizer::update(const FlatWindow& window, const UpdateStep& step, const std::optional<Betas>& betas,
                       const kernels::Place& place) const {
  std::visit([&](const auto& where) { update_at(window, step, betas_or(betas), where); }, place);
}

template <typename Where>
void Optimizer::update_at(const FlatWindow& window, const UpdateStep& step, const Betas& used,
                          const Where& where) const {
  switch (settings_.rule) {
    case OptimizerRule::kAdam:
      return kernels::adam(window, step,
                           {.beta1 = used.first,
                            .beta2 = used.second,
                            .epsilon = settings_.epsilon,
                            .bias_correction = settings_.bias_correction,
                            .weight_decay = settings_.weight_decay,
                            .amsgrad = settings_.amsgrad},
                           where);
    case OptimizerRule::kAdagrad:
      return kernels::adagrad(window, step, {.epsilon = settings_.epsilon, .lr_decay = settings_.lr_decay}, where);
    case OptimizerRule::kLion:
      return kernels::lion(window, step, {.beta1 = used.first, .beta2 = used.second}, where);
    case OptimizerRule::kSgd:
      return kernels::sgd(
          window, step,
          {.momentum = settings_.momentum, .dampening = settings_.dampening, .nesterov = settings_.nesterov}, where);
    case OptimizerRule::kLamb:
      fail(ErrorKind::kInternal, "Lamb is updated by prepare, trust_ratios and apply");
  }
}

void Optimizer::prepare(const FlatWindow& window, const UpdateStep& step, std::span<LambSums> sums,
                        const std::optional<Betas>& betas, const kernels::Place& place) const {
  std::visit([&](const auto& where) { kernels::lamb_moments(window, step, lamb(betas), sums, where); }, place);
}

std::vector<double> Optimizer::trust_ratios(std::span<const kernels::TensorSegment> tensors,
                                            std::span<const LambSums> sums) const {
  return kernels::lamb_coefficients(tensors, sums, lamb(std::nullopt));
}

void Optimizer::apply(const FlatWindow& window, const UpdateStep& step, std::span<const double> ratios,
                      const std::optional<Betas>& betas, const kernels::Place& place) const {
  std::visit([&](const auto& where) { kernels::lamb_apply(window, step, lamb(betas), ratios, where); }, place);
}

}  // namespace strake::optim
