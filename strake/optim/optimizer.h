#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/kernels/cuda/on_cuda.h"
#include "strake/kernels/lamb.h"
#include "strake/kernels/optimizer_pass.h"
#include "strake/optim/betas.h"

namespace strake::optim {

enum class OptimizerRule { kAdam, kAdagrad, kLion, kLamb, kSgd };

// Which optimizer, and all that does not change during a run; each rule reads its own.
struct OptimizerSettings {
  OptimizerRule rule = OptimizerRule::kAdam;
  Betas betas;                                                           // Adam, Lamb, Lion
  double epsilon = 1e-8;                                                 // Adam, Lamb, Adagrad
  bool bias_correction = true;                                           // Adam, Lamb
  kernels::WeightDecay weight_decay = kernels::WeightDecay::kDecoupled;  // Adam: AdamW or Adam
  bool amsgrad = false;                                                  // Adam
  double lr_decay = 0;                                                   // Adagrad
  double initial_accumulator_value = 0;                                  // Adagrad
  double max_coefficient = 10;                                           // Lamb
  double min_coefficient = 0.01;                                         // Lamb
  double momentum = 0;                                                   // SGD
  double dampening = 0;                                                  // SGD
  bool nesterov = false;                                                 // SGD

  // Error (kConfig) for values that make no sense.
  void validate() const;
};

// --optim, --optim_args and the flags that Transformers' Trainer hands to its optimizers:
//   adamw_torch, adamw_torch_fused, adamw   AdamW; the three are one here
//   sgd                                     arguments momentum, dampening, nesterov
//   adagrad                                 arguments eps (1e-10), lr_decay
//   lion, lion_32bit                        betas from the flags
//   lamb                                    arguments max_coeff, min_coeff; betas and epsilon from the flags
// `arguments` is "name=value,name=value". Error (kConfig) with the nearest name for anything else.
struct TransformersOptimizer {
  std::string name = "adamw_torch";
  std::string arguments;
  Betas betas;            // adam_beta1, adam_beta2
  double epsilon = 1e-8;  // adam_epsilon
};
OptimizerSettings optimizer_settings(const TransformersOptimizer& options);

// ds_config.json: optimizer.type (Adam, AdamW, Adagrad, Lamb, Lion, SGD) and optimizer.params with DeepSpeed's
// defaults, of which "lr" and "weight_decay" are left to the caller. Adam is AdamW unless adam_w_mode is false. Error
// (kConfig) for another type, and for parameters that the type does not have or that ask for what is not there
// (maximize).
OptimizerSettings optimizer_settings_of_deepspeed(const std::string& type, const Json& params);

// One rule over flat buffers. Every update is a function of its arguments alone: a buffer may be updated in any windows
// (for Lamb: cut at multiples of kernels::kSquaresChunk), in any order, also while its state is read from a file window
// by window. Immutable; safe to use from several threads.
class Optimizer {
 public:
  struct State {
    const char* name;  // as in torch: exp_avg, exp_avg_sq, max_exp_avg_sq, sum, momentum_buffer
    float initial;     // value of every element before the first step
  };

  // Error (kConfig), see OptimizerSettings::validate.
  explicit Optimizer(const OptimizerSettings& settings);

  const OptimizerSettings& settings() const { return settings_; }
  // The state tensors of every parameter, in the order of FlatWindow::states.
  std::span<const State> states() const { return states_; }
  // True if schedules may cycle the betas.
  bool has_betas() const;

  // With `betas`, those instead of the settings'; kInternal for a rule without.
  void update(const kernels::FlatWindow& window, const kernels::UpdateStep& step,
              const std::optional<Betas>& betas = std::nullopt, const kernels::Place& place = best_isa()) const;

  // True for Lamb, whose update is not one call but, for all windows of a flat buffer:
  //   prepare(window, step, sums, betas) into kernels::num_lamb_sums(tensors) zeroed sums;
  //   add up the sums of all ranks that have windows of the buffer;
  //   apply(window, step, trust_ratios(tensors, sums), betas).
  // On a device, prepare's sums are its memory, those of trust_ratios the host's.
  bool needs_trust_ratios() const { return settings_.rule == OptimizerRule::kLamb; }
  void prepare(const kernels::FlatWindow& window, const kernels::UpdateStep& step, std::span<kernels::LambSums> sums,
               const std::optional<Betas>& betas = std::nullopt, const kernels::Place& place = best_isa()) const;
  std::vector<double> trust_ratios(std::span<const kernels::TensorSegment> tensors,
                                   std::span<const kernels::LambSums> sums) const;
  void apply(const kernels::FlatWindow& window, const kernels::UpdateStep& step, std::span<const double> ratios,
             const std::optional<Betas>& betas = std::nullopt, const kernels::Place& place = best_isa()) const;

 private:
  Betas betas_or(const std::optional<Betas>& betas) const;
  template <typename Where>  // Isa or OnCuda
  void update_at(const kernels::FlatWindow& window, const kernels::UpdateStep& step, const Betas& used,
                 const Where& where) const;
  kernels::Lamb lamb(const std::optional<Betas>& betas) const;

  OptimizerSettings settings_;
  std::vector<State> states_;
};

}  // namespace strake::optim
