#include "strake/tasks/run_log.h"

#include <iostream>

#include "strake/core/log.h"
#include "strake/monitor/closing_table.h"
#include "strake/monitor/number_text.h"

namespace strake::tasks {
namespace {

monitor::MetricsLog open_metrics(const TrainConfig& config, const std::optional<std::filesystem::path>& resume_from) {
  const std::filesystem::path path = std::filesystem::path(config.output_dir) / "metrics.jsonl";
  if (!resume_from) return monitor::MetricsLog::start(path);
  const std::filesystem::path state = *resume_from / "strake_state.json";
  const Json document = read_json(state, kMaxConfigBytes);
  const Json run = get_required<Json>(document, "state", state.string());
  return monitor::MetricsLog::resume(path, get_required<int64_t>(run, "step", state.string()));
}

}  // namespace

RunLog::RunLog(const TrainConfig& config, const std::optional<std::filesystem::path>& resume_from)
    : config_(config), metrics_(open_metrics(config, resume_from)) {}

void RunLog::on_step(const training::StepReport&, double, int64_t) {}

void RunLog::on_log(const Json& entry) {
  metrics_.append(entry);
  log::info("{}", entry.dump());
}

void RunLog::close(const training::TrainReport& report) {
  std::vector<monitor::TableRow> rows{{"steps", monitor::count_text(report.steps)},
                                      {"epochs", fmt::format("{:.2f}", report.epochs)},
                                      {"train_loss", fmt::format("{:.4f}", report.mean_loss)},
                                      {"train_runtime", monitor::duration_text(report.seconds)},
                                      {"train_samples_per_second", fmt::format("{:.1f}", report.samples_per_second)},
                                      {"train_tokens_per_second", fmt::format("{:.0f}", report.tokens_per_second)}};
  if (report.last_evaluation) {
    rows.emplace_back("eval_loss", fmt::format("{:.4f}", report.last_evaluation->loss));
    for (const auto& [name, value] : report.last_evaluation->metrics) {
      rows.emplace_back("eval_" + name, fmt::format("{:.4f}", value));
    }
  }
  if (report.best_metric && config_.training.load_best_model_at_end) {
    rows.emplace_back("best_" + config_.training.best_metric_name(), fmt::format("{:.4f}", *report.best_metric));
    rows.emplace_back("best_step", monitor::count_text(report.best_step));
  }
  rows.emplace_back("output_dir", config_.output_dir);
  monitor::print_closing_table(std::cout, "train", rows);
}

}  // namespace strake::tasks
