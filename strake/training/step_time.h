#pragma once

#include <cstdint>
#include <optional>

#include "strake/training/memory_plan.h"

namespace strake::training {

// What one rank gets done in a second while all ranks are at work.
struct RankSpeed {
  double flops = 0;                  // of matrix products, with all that goes on between them
  double sent_bytes = 0;             // to the other ranks
  double sent_bytes_in_group = 0;    // hybrid: to those of its group
  double memory_bytes = 0;           // read or written
  std::optional<double> disk_bytes;  // read or written, of its share of the disk; none: its time is left out
  int threads = 1;                   // that compute
};

// Seconds of an optimizer step of one rank, each as if nothing else went on.
struct StepTime {
  double arithmetic = 0;     // forward and backward passes
  double communication = 0;  // of parameters and gradients
  double disk = 0;           // of what is offloaded
  double optimizer = 0;
  double hidden = 0;  // what of communication and disk goes on during arithmetic and optimizer
  double total() const { return arithmetic + communication + disk + optimizer - hidden; }
};

// Goes through a step as Stepper, ShardedParameters and GradientReducer do, with a clock for the rank's computing
// thread and one for its communication thread. What the latter does takes the core of one of the rank's compute
// threads away: of several threads all but one go on meanwhile, and a lone one gains nothing. Sums of embedding tables
// are taken to be of all rows. Loading data, evaluation and saving are not in it.
StepTime step_time(const MemoryPlanRequest& request, const RankSpeed& speed);

// Bytes that a rank sends in such a step, at 1 / (ranks of the group) for what stays with it: parameters gathered by
// stage 3 for the passes and by stages 1 and 2 after the update, gradients reduced for each micro-batch. Without the
// few numbers of loss and norm.
int64_t communicated_bytes(const MemoryPlanRequest& request);

}  // namespace strake::training
