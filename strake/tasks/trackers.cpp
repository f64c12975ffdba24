#include "strake/tasks/trackers.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

#include "strake/core/error.h"
#include "strake/core/host_name.h"
#include "strake/core/log.h"
#include "strake/monitor/event_file.h"
#include "strake/monitor/scalar_csv.h"

namespace strake::tasks {
namespace fs = std::filesystem;
namespace {

bool reports_to_tensorboard(const TrainConfig& config) {
  const auto has = [&](const char* name) {
    return std::ranges::find(config.report_to, name) != config.report_to.end();
  };
  return has("tensorboard") || has("all");
}

// runs/Nov26_15-04-05_host, as the Trainer has it; its variable names another place.
fs::path logging_folder(const TrainConfig& config) {
  if (!config.logging_dir.empty()) return config.logging_dir;
  const char* named = std::getenv("TENSORBOARD_LOGGING_DIR");
  if (named != nullptr && *named != '\0') return named;
  const std::time_t now = std::time(nullptr);
  std::tm here{};
  ::localtime_r(&now, &here);
  return fs::path(config.output_dir) / "runs" / fmt::format("{:%b%d_%H-%M-%S}_{}", here, host_name());
}

std::string scalar_tag(std::string_view name) {
  for (const std::string_view part : {"eval", "test"}) {
    if (name.starts_with(part) && name.substr(part.size()).starts_with('_')) {
      return fmt::format("{}/{}", part, name.substr(part.size() + 1));
    }
  }
  return fmt::format("train/{}", name);
}

}  // namespace

Trackers::Trackers(const TrainConfig& config, const std::optional<training::RunProgress>& done)
    : samples_per_step_(config.training.max_tokens_per_batch > 0 ? 0 : config.monitors.samples_per_step),
      scales_losses_(config.training.fp16) {
  if (done && done->is_whole) return;  // its closing numbers are there already
  if (done) samples_ = samples_per_step_ > 0 ? done->steps * samples_per_step_ : done->sequences;
  if (reports_to_tensorboard(config)) {
    const fs::path folder = logging_folder(config);
    logged_ = std::make_unique<monitor::EventFile>(folder, done ? std::optional(done->steps + 1) : std::nullopt);
    log::info("TensorBoard: {}", folder.string());
  }
  if (config.monitors.tensorboard) {
    const auto first = done ? std::optional(samples_ + 1) : std::nullopt;
    sampled_.push_back(std::make_unique<monitor::EventFile>(*config.monitors.tensorboard, first));
  }
  if (config.monitors.csv) sampled_.push_back(std::make_unique<monitor::ScalarCsv>(*config.monitors.csv));
}

void Trackers::on_step(const training::StepReport& report) {
  if (sampled_.empty()) return;
  samples_ = samples_per_step_ > 0 ? report.step * samples_per_step_ : samples_ + report.batch.sequences;
  std::vector<monitor::Scalar> scalars{{"Train/Samples/train_loss", report.loss},
                                       {"Train/Samples/lr", report.learning_rate}};
  if (scales_losses_) scalars.push_back({"Train/Samples/loss_scale", report.loss_scale});
  if (report.parts) {
    constexpr double kMilliseconds = 1e3;
    const auto add = [&](const char* name, double seconds) {
      scalars.push_back({fmt::format("Train/Samples/elapsed_time_ms_{}", name), kMilliseconds * seconds});
    };
    add("forward", report.parts->forward);
    add("backward", report.parts->backward + report.parts->reduction);
    add("backward_inner", report.parts->backward);
    add("backward_allreduce", report.parts->reduction);
    add("step", report.parts->update);
  }
  for (const auto& log : sampled_) log->write(scalars, samples_);
}

void Trackers::on_log(const Json& entry) {
  if (const auto loss = entry.find("eval_loss"); loss != entry.end()) {
    const monitor::Scalar evaluated{"Train/Samples/eval_loss", loss->get<double>()};
    for (const auto& log : sampled_) log->write({&evaluated, 1}, samples_);
  }
  if (!logged_) return;
  std::vector<monitor::Scalar> scalars;
  for (const auto& [name, value] : entry.items()) {
    if (value.is_number() && name != "step") scalars.push_back({scalar_tag(name), value.get<double>()});
  }
  logged_->write(scalars, entry["step"].get<int64_t>());
}

void check_tracker_flags(const TrainConfig& config) {
  constexpr std::array<std::string_view, 4> kKnown{"none", "", "tensorboard", "all"};
  for (const std::string& name : config.report_to) {
    require(std::ranges::find(kKnown, name) != kKnown.end(), ErrorKind::kUsage,
            "--report_to {}: none, tensorboard and all are there; metrics.jsonl has every number", printable(name));
  }
  require(config.logging_dir.empty() || reports_to_tensorboard(config), ErrorKind::kUsage,
          "--logging_dir is of --report_to tensorboard, which is {}", fmt::join(config.report_to, " "));
}

}  // namespace strake::tasks
