#pragma once

#include <cstdint>
#include <optional>

#include "strake/monitor/metrics_log.h"
#include "strake/monitor/progress.h"
#include "strake/tasks/comms_log.h"
#include "strake/tasks/memory_report.h"
#include "strake/tasks/trackers.h"
#include "strake/tasks/train.h"
#include "strake/training/trainer.h"

namespace strake::tasks {

// What a training run shows and records on rank 0: progress, metrics.jsonl, trackers, and the table at the end.
class RunLog final : public training::RunListener {
 public:
  // Both outlive it.
  RunLog(const TrainConfig& config, const models::Model& model) : config_(config), model_(model) {}

  // Before the first step: begins metrics.jsonl and what trackers read, or cuts it back to the steps of the checkpoint
  // that the run goes on from; to files of DeepSpeed's csv_monitor runs append, as they do there.
  void open(const std::optional<training::RunProgress>& done);

  void on_step(const training::StepReport& report, double epoch, int64_t total_steps) override;
  void on_log(const Json& entry) override;
  // Prints the closing table to standard output.
  void close(const training::TrainReport& report);

 private:
  void write_profile(const training::StepReport& step);

  const TrainConfig& config_;
  const models::Model& model_;
  std::optional<monitor::MetricsLog> metrics_;
  std::optional<Trackers> trackers_;
  std::optional<monitor::Progress> progress_;
  int64_t tokens_ = 0;
};

// What a run's collectives were, on standard output.
void tell_collectives(const CommsLog& log);

// --dry_run: the run's memory, on standard output.
void tell_plan(const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits);

}  // namespace strake::tasks
