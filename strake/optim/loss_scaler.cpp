#include "strake/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "strake/core/error.h"

namespace strake::optim {

LossScaler::LossScaler(const LossScaling& settings) : settings_(settings) {
  state_.scale = is_dynamic() ? std::exp2(static_cast<double>(settings.initial_scale_power)) : settings.loss_scale;
  state_.hysteresis = settings.hysteresis;
}

void LossScaler::update(bool overflowed) {
  if (!is_dynamic()) return;
  if (overflowed) {
    state_.last_overflow = state_.steps;
    if (state_.hysteresis > 1) {
      --state_.hysteresis;
    } else {
      require(state_.scale != settings_.min_loss_scale, ErrorKind::kNumeric,
              "the fp16 loss scale is at its minimum, {}, and the gradient still overflows: the model's activations or "
              "weights do not fit fp16. Try --bf16, or a lower --learning_rate",
              settings_.min_loss_scale);
      state_.scale = std::max(state_.scale / 2, settings_.min_loss_scale);
    }
  } else {
    if (settings_.consecutive_hysteresis) state_.hysteresis = settings_.hysteresis;
    const int64_t stable = state_.steps - state_.last_overflow - 1;  // as DeepSpeed: the step after an overflow is 0
    if (stable > 0 && stable % settings_.loss_scale_window == 0) {
      state_.hysteresis = settings_.hysteresis;
      state_.scale *= 2;
    }
  }
  ++state_.steps;
}

void LossScaler::restore(const State& state) {
  state_ = state;
  if (!is_dynamic()) state_.scale = settings_.loss_scale;
}

}  // namespace strake::optim
