#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/core/clock.h"
#include "strake/data/batch_plan.h"
#include "strake/data/token_dataset.h"
#include "strake/models/model.h"
#include "strake/optim/betas.h"
#include "strake/training/gradient_reducer.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training {

// What the schedule says about a step.
struct StepPlan {
  int64_t number = 1;   // 1 for the first; keys dropout
  int64_t skipped = 0;  // steps before this one that updated nothing
  double learning_rate = 0;
  std::optional<optim::Betas> betas = std::nullopt;  // instead of the optimizer's
  double loss_scale = 1;                             // of the loss whose gradient is taken
};

// Where a step's time went, in seconds of this rank's computing thread.
struct StepParts {
  double forward = 0;    // with waiting for parameters, as backward
  double backward = 0;   // without waiting for the next
  double reduction = 0;  // of gradients: what did not go on beside the backward pass
  double update = 0;     // losses of all ranks, norm, clipping, update, and what of it the others get
};

struct StepReport {
  int64_t step = 0;          // 1 for the first
  double loss = 0;           // mean over the step's targets, of all ranks
  double gradient_norm = 0;  // before clipping, of the loss itself
  double loss_scale = 1;
  bool skipped = false;  // fp16: the gradient overflowed, and nothing was updated
  double learning_rate = 0;
  models::BatchShape batch;  // all micro-batches of all ranks; the loss is the mean of its targets
  double seconds = 0;
  bool ends_run = false;                          // some rank was asked to end
  bool is_saving = false;                         // some rank still writes its part of a checkpoint
  std::optional<StepParts> parts = std::nullopt;  // if Stepper::measure_parts() was called
};

// Asked of every rank in every step, and told to all of them by its report.
struct RankQuestions {
  std::function<bool()> is_asked_to_end;
  std::function<bool()> is_saving;
};

// One optimizer step over micro-batches that are spread over the ranks.
class Stepper {
 public:
  Stepper(const models::Model& model, ShardedParameters& parameters, comm::Comm& comm, const TrainingOptions& options);

  // Empty functions: no.
  void ask(RankQuestions questions) { questions_ = std::move(questions); }

  // From now on steps report their parts. A GPU is waited for at the end of each.
  void measure_parts() { parts_.emplace(); }

  // Collective. A step in fp16 whose gradient is not finite is skipped, on all ranks alike. Otherwise Error (kNumeric)
  // naming the step if loss or gradient are not finite; the parameters are then those before the step.
  StepReport run(const data::TokenDataset& dataset, const data::GlobalStep& global, const StepPlan& plan);

  // Frees what is kept from one step to the next only to be used again.
  void release_buffers();

 private:
  // Loss of this rank's micro-batch, scaled as its gradients, which are on their way to the sum. Without a batch
  // undefined: the rank only takes its part in the collectives.
  at::Tensor forward_backward(const std::optional<tensors::PackedBatch>& batch, const PhiloxKey& key, double divisor);
  // Clips and updates. Error (kNumeric) as run().
  void update(const StepPlan& plan, const StepReport& report);
  // Adds the time since the part before to this one.
  void end_part(double StepParts::* part);
  // Sum over micro-batches in global order of the losses that the ranks have in order of micro-steps; and what some
  // rank answered.
  void gather_losses(const std::vector<at::Tensor>& losses, StepReport& report);

  const models::Model& model_;
  ShardedParameters& parameters_;
  comm::Comm& comm_;
  TrainingOptions options_;
  GradientReducer reducer_;
  RankQuestions questions_;
  std::optional<StepParts> parts_;  // of the step that runs, if they are measured
  Clock::time_point part_began_;
};

}  // namespace strake::training
