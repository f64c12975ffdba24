#include "strake/tasks/run_log.h"

#include <filesystem>
#include <iostream>

#include "strake/core/log.h"
#include "strake/monitor/closing_table.h"
#include "strake/monitor/number_text.h"
#include "strake/tasks/flops_profile.h"
#include "strake/tensors/cuda_libtorch.h"
#include "strake/tensors/tracked_memory.h"

namespace strake::tasks {
namespace {

monitor::MetricsLog open_metrics(const TrainConfig& config, const std::optional<training::RunProgress>& done) {
  const std::filesystem::path path = std::filesystem::path(config.output_dir) / "metrics.jsonl";
  return done ? monitor::MetricsLog::resume(path, done->log) : monitor::MetricsLog::start(path);
}

// "step 12, loss 0.4321, eval_accuracy 0.8125": an entry's numbers that tell how the training goes.
std::string brief(const Json& entry) {
  std::string text = fmt::format("step {}", entry["step"].get<int64_t>());
  for (const auto& [name, value] : entry.items()) {
    const bool telling = name == "loss" || name == "grad_norm" || name == "learning_rate" ||
                         (name.starts_with("eval_") && name != "eval_runtime" && !name.ends_with("_per_second"));
    if (telling && value.is_number()) text += fmt::format(", {} {:.4g}", name, value.get<double>());
  }
  return text;
}

// As DeepSpeed's engine prints wall_clock_breakdown; empty if the parts of the step were not measured.
std::string breakdown(const Json& entry) {
  if (!entry.contains("forward_seconds")) return "";
  const auto milliseconds = [&](const char* name) { return 1e3 * entry[name].get<double>(); };
  const double inner = milliseconds("backward_seconds");
  const double reduction = milliseconds("reduction_seconds");
  return fmt::format("time (ms) | fwd: {:.2f} | bwd: {:.2f} | bwd_inner: {:.2f} | bwd_allreduce: {:.2f} | step: {:.2f}",
                     milliseconds("forward_seconds"), inner + reduction, inner, reduction,
                     milliseconds("update_seconds"));
}

}  // namespace

void RunLog::open(const std::optional<training::RunProgress>& done) {
  metrics_.emplace(open_metrics(config_, done));
  trackers_.emplace(config_, done);
  if (!config_.disable_tqdm) {
    progress_.emplace(monitor::ProgressOptions{.done_at_start = done ? done->steps : 0});
  }
}

void RunLog::on_step(const training::StepReport& report, double epoch, int64_t total_steps) {
  trackers_->on_step(report);
  if (config_.flops_profiler && config_.flops_profiler->profile_step == report.step) write_profile(report);
  if (!progress_) return;
  tokens_ += report.batch.tokens;
  progress_->update({.done = report.step,
                     .total = total_steps,
                     .tokens = tokens_,
                     .epoch = epoch,
                     .loss = report.loss,
                     .learning_rate = report.learning_rate});
}

void RunLog::write_profile(const training::StepReport& step) {
  if (progress_) progress_->make_room();
  const auto recomputation = config_.training.gradient_checkpointing ? training::Recomputation::kCounted
                                                                     : training::Recomputation::kNotCounted;
  const integrations::DsFlopsProfiler& options = *config_.flops_profiler;
  write_flops_profile(flops_profile(model_, step, options, recomputation), options, std::cout);
}

void RunLog::on_log(const Json& entry) {
  metrics_->append(entry);
  trackers_->on_log(entry);
  if (entry.contains("train_runtime")) return;  // in the closing table
  if (progress_) progress_->make_room();
  log::info("{}", brief(entry));
  if (const std::string times = breakdown(entry); !times.empty()) log::info("{}", times);
}

void RunLog::close(const training::TrainReport& report) {
  if (progress_) progress_->finish();
  if (report.is_interrupted) {
    log::warning(
        "SIGTERM: the run ends after step {}, which is saved; --resume_from_checkpoint true goes on from there",
        report.steps);
    return;
  }
  std::vector<monitor::TableRow> rows{{"steps", monitor::count_text(report.steps)}};
  if (report.skipped_steps) rows.emplace_back("skipped_steps", monitor::count_text(*report.skipped_steps));
  rows.insert(rows.end(), {{"epochs", fmt::format("{:.2f}", report.epochs)},
                           {"train_loss", fmt::format("{:.4f}", report.mean_loss)},
                           {"train_runtime", monitor::duration_text(report.seconds)},
                           {"train_samples_per_second", fmt::format("{:.1f}", report.samples_per_second)},
                           {"train_tokens_per_second", fmt::format("{:.0f}", report.tokens_per_second)}});
  if (report.trained_parameters < report.parameters) {
    const double share = static_cast<double>(report.trained_parameters) / static_cast<double>(report.parameters);
    rows.emplace_back("trainable_parameters",
                      fmt::format("{} of {} ({:.4f} %)", monitor::count_text(report.trained_parameters),
                                  monitor::count_text(report.parameters), 100 * share));
  }
  // Of the model that is written.
  const bool is_best = report.best_kept && config_.training.load_best_model_at_end;
  const auto& evaluation = is_best ? report.best_evaluation : report.last_evaluation;
  if (evaluation) {
    rows.emplace_back("eval_loss", fmt::format("{:.4f}", evaluation->loss));
    for (const auto& [name, value] : evaluation->metrics) {
      rows.emplace_back("eval_" + name, fmt::format("{:.4f}", value));
    }
  }
  if (is_best) {
    rows.emplace_back("best_" + config_.training.best_metric_name(), fmt::format("{:.4f}", report.best_kept->metric));
    rows.emplace_back("best_step", monitor::count_text(report.best_kept->step));
  }
  rows.emplace_back("peak_tracked_bytes",
                    fmt::format("{} ({} rank{})", monitor::count_text(tensors::peak_tracked_bytes()), config_.ranks,
                                config_.ranks == 1 ? "" : "s"));
  if (config_.trains_on_gpus()) {
    rows.emplace_back("peak_gpu_bytes", monitor::count_text(tensors::peak_gpu_bytes()));
  }
  rows.emplace_back("output_dir", config_.output_dir);
  monitor::print_closing_table(std::cout, "train", rows);
}

void tell_collectives(const CommsLog& log) { log.print(std::cout); }

void tell_plan(const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits) {
  print_plan(std::cout, run, variant, limits);
}

}  // namespace strake::tasks
