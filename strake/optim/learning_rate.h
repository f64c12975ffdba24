#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "strake/core/json.h"
#include "strake/optim/betas.h"

namespace strake::optim {

// --warmup_steps and --warmup_ratio.
struct WarmupOptions {
  double steps = 0;  // from 1 on a count (its fraction is dropped), below 1 a share of all steps
  double ratio = 0;  // share of all steps, in [0, 1]; used when `steps` is 0
};

// Optimizer updates of the warm-up: Transformers 5's TrainingArguments.get_warmup_steps, and warmup_ratio as in its
// version 4 (a share is rounded up). Error (kConfig) for negative values or a ratio above 1.
int64_t resolve_warmup_steps(const WarmupOptions& options, int64_t total_steps);

struct ScheduleOptions {
  std::string type = "linear";   // lr_scheduler_type
  double learning_rate = 5e-5;   // peak
  int64_t warmup_steps = 0;      // optimizer updates
  int64_t total_steps = 0;       // optimizer updates of the whole run; 0: not known yet, only arguments are checked
  Json kwargs = Json::object();  // with the names and defaults of Transformers
  std::string kwargs_source = "lr_scheduler_kwargs";
};

// What a schedule gives at every update.
struct ScheduleCourse {
  std::function<double(int64_t)> rate;
  std::function<Betas(int64_t)> betas = {};  // empty: the optimizer's own
  bool has_own_rates = false;                // whose peak is another than the learning rate
};

// The learning rate of every optimizer update, as transformers.get_scheduler (5.23) gives it:
//   constant                   constant_with_warmup
//   linear                     inverse_sqrt                (timescale: warm-up steps, or 10000 without warm-up)
//   cosine                     (num_cycles 0.5)
//   cosine_with_restarts       (num_cycles 1)
//   polynomial                 (lr_end 1e-7, power 1)
//   cosine_with_min_lr         (num_cycles 0.5; min_lr or min_lr_rate)
//   cosine_warmup_with_min_lr  (num_cycles 0.5; min_lr or min_lr_rate; warmup_lr_rate)
//   warmup_stable_decay        (num_decay_steps; num_stable_steps, warmup_type linear, decay_type cosine,
//                              min_lr_ratio 0, num_cycles 0.5)
// and those of DeepSpeed (0.19), with rates of their own:
//   WarmupLR        (warmup_min_lr 0, warmup_max_lr the peak, warmup_num_steps 1000, warmup_type log)
//   WarmupDecayLR   (total_num_steps; warmup_max_lr 0.001, else as WarmupLR)
//   WarmupCosineLR  (total_num_steps; warmup_min_ratio 0, warmup_num_steps 1000, cos_min_ratio 0.0001, warmup_type log;
//                   shares of the peak)
//   OneCycle        (cycle_min_lr, cycle_max_lr; decay_lr_rate 0, cycle_first_step_size 2000,
//                   cycle_second_step_size the first, cycle_first_stair_count 0, cycle_second_stair_count the first,
//                   decay_step_size 0, cycle_momentum true, cycle_min_mom 0.8, cycle_max_mom 0.9, decay_mom_rate 0)
//   LRRangeTest     (lr_range_test_min_lr 0.001, lr_range_test_step_size 2000, lr_range_test_step_rate 1,
//                   lr_range_test_staircase false)
// DeepSpeed's learning rate before the scheduler's first step is the lowest one, so WarmupLR and its like use that for
// the first two updates. Their warm-up is warmup_num_steps, or ScheduleOptions::warmup_steps where that is missing.
// Schedules that depend on measured losses (reduce_lr_on_plateau, greedy) are refused.
// Immutable; safe to use from several threads.
class LearningRateSchedule {
 public:
  // Error (kConfig) for an unknown type, an argument the type does not have, a value out of range, or a warm-up that
  // the type does not have or that differs from its own.
  explicit LearningRateSchedule(const ScheduleOptions& options);

  // Learning rate of optimizer update number `step`, counted from 0: the first update uses at(0), usually 0 with
  // warm-up, as under torch's LambdaLR. A pure function of `step`, so resuming needs no state.
  double at(int64_t step) const;
  // The optimizer's betas at that update, where the schedule cycles them (OneCycle with cycle_momentum).
  std::optional<Betas> betas_at(int64_t step) const;
  bool cycles_betas() const { return static_cast<bool>(course_.betas); }
  // The peak learning rate changes nothing.
  bool has_rates_of_its_own() const { return course_.has_own_rates; }

 private:
  ScheduleCourse course_;
};

}  // namespace strake::optim
