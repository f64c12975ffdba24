#pragma once

#include <cstdint>

namespace strake::optim {

// How fp16 training scales its loss: DeepSpeed's names and defaults (deepspeed/runtime/fp16/loss_scaler.py).
struct LossScaling {
  double loss_scale = 0;  // 0: dynamic, else the scale of all steps
  int64_t initial_scale_power = 16;
  int64_t loss_scale_window = 1000;     // steps without overflow after which the scale is doubled
  int64_t hysteresis = 2;               // overflows until the scale is halved
  bool consecutive_hysteresis = false;  // a step without overflow begins the count again
  double min_loss_scale = 1;
};

// The factor by which the loss of an fp16 step is multiplied, so that small gradients are not rounded to zero
// (Micikevicius et al., "Mixed Precision Training", ICLR 2018), by DeepSpeed's rules: a step whose gradient overflows
// is skipped; from the `hysteresis`-th overflow on the scale is halved by each, down to the minimum;
// `loss_scale_window` steps without overflow double it and begin the count of overflows again. Dynamic scales are
// powers of two, unless the minimum is none, so that scaling by them changes no bits of what does not overflow or
// underflow.
class LossScaler {
 public:
  // What decides about the next steps; all of it is in checkpoints.
  struct State {
    double scale = 1;
    int64_t steps = 0;
    int64_t last_overflow = -1;  // number of the step, from 0
    int64_t hysteresis = 1;      // overflows left until the scale is halved
    bool operator==(const State&) const = default;
  };

  explicit LossScaler(const LossScaling& settings);

  double scale() const { return state_.scale; }
  // After a step. Error (kNumeric) if a dynamic scale is at its minimum and must be halved.
  void update(bool overflowed);

  const State& state() const { return state_; }
  // A static scale stays the one of the settings.
  void restore(const State& state);

 private:
  bool is_dynamic() const { return settings_.loss_scale == 0; }

  LossScaling settings_;
  State state_;
};

}  // namespace strake::optim
