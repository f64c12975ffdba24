#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "strake/core/json.h"
#include "strake/monitor/scalar_log.h"
#include "strake/tasks/train.h"
#include "strake/training/stepper.h"
#include "strake/training/trainer.h"

namespace strake::tasks {

// Where a run's numbers go beside metrics.jsonl, on rank 0:
//   --report_to tensorboard  what is logged, by the Trainer's tags (train/loss, eval/accuracy) and step
//   ds_config.json           tensorboard and csv_monitor: Train/Samples/{train_loss, lr, loss_scale} of every step,
//                            with wall_clock_breakdown also elapsed_time_ms_*, and eval_loss, by the number of
//                            sequences so far: as DeepSpeed counts them, train_batch_size a step, where a batch has
//                            that many
class Trackers {
 public:
  // `done`: of a run that goes on. If no step is left, nothing is written.
  Trackers(const TrainConfig& config, const std::optional<training::RunProgress>& done);

  void on_step(const training::StepReport& report);
  void on_log(const Json& entry);

 private:
  std::unique_ptr<monitor::ScalarLog> logged_;
  std::vector<std::unique_ptr<monitor::ScalarLog>> sampled_;
  int64_t samples_per_step_;  // 0: as many as fit into its tokens
  int64_t samples_ = 0;       // so far
  bool scales_losses_;
};

// Error (kUsage) that names --report_to or --logging_dir.
void check_tracker_flags(const TrainConfig& config);

}  // namespace strake::tasks
