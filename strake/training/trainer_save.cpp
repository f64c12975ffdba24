// What a Trainer writes: checkpoints on its way, and the model at its end.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/tensors/checkpoint_files.h"
#include "strake/training/model_files.h"
#include "strake/training/trainer.h"

namespace strake::training {
namespace {

namespace fs = std::filesystem;

// The closing entry that `output_dir` has already if it is of the same run, else `closing`.
Json earlier_closing(const fs::path& output_dir, const Json& closing) {
  if (!is_there(output_dir / kHistoryFile)) return closing;
  monitor::TrainerState state;
  try {
    state = read_history(output_dir);
  } catch (const Error& error) {
    log::warning("{}; it is written anew", error.what());
    return closing;
  }
  const Json last = state.log_history.empty() ? Json::object() : state.log_history.back();
  const auto is_same = [&](const char* key) { return last.contains(key) && last[key] == closing[key]; };
  return last.contains("train_runtime") && is_same("train_loss") && is_same("total_flos") ? last : closing;
}

FileSums sums_of_all(const FileSums& own, comm::Comm& comm) {
  Json own_values = Json::object();
  for (const auto& [name, sum] : own) own_values[name] = {sum.bytes, sum.crc};
  FileSums all;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const Json values = Json::parse(comm::broadcast_text(comm, json_text(own_values), rank));
    for (const auto& [name, sum] : values.items()) all[name] = {sum[0].get<uint64_t>(), sum[1].get<uint32_t>()};
  }
  return all;
}

// 0: there is no file.
ino_t file_number(const fs::path& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

void Trainer::save(TensorFiles::Write when) {
  finish_save();
  stepper_.release_buffers();  // room for the blocks that are gathered to be written
  std::unique_ptr<checkpoint::CheckpointWriter> writer;
  if (comm_.rank() == 0) writer = std::make_unique<checkpoint::CheckpointWriter>(inputs_.output_dir, state_.step);
  comm_.barrier();  // the folder is there
  TensorFiles files(checkpoint::temporary_folder(inputs_.output_dir, state_.step), when);
  const bool keeps_best = keeps_best_ && state_.best_model.kept && !best_folder_.empty();
  if (keeps_best) history_.best_model_checkpoint = best_folder_.string();
  history_.global_step = state_.step;
  history_.epoch = epoch_now();
  history_.total_flos = state_.flops;
  const auto start = Clock::now();
  try {
    write_run(inputs_.model, parameters_, state_, inputs_.fingerprint, files);
    if (writer) {
      files.add([write = inputs_.write_companions, folder = files.folder()] { write(folder); });
      files.add_text(kHistoryFile, history_text());
    }
  } catch (...) {
    // Others still write into it, and would report as the error that it is gone.
    if (writer && comm_.size() > 1) writer->leave();
    throw;
  }
  pending_save_ = std::make_unique<PendingSave>(std::move(files), std::move(writer),
                                                keeps_best ? std::optional(best_folder_) : std::nullopt);
  if (when == TensorFiles::Write::kNow) return finish_save();
  if (comm_.rank() == 0) {
    log::info("{} is copied in {:.2f} s and written while training goes on", checkpoint::folder_name(state_.step),
              seconds_since(start));
  }
}

void Trainer::finish_save() {
  const auto save = std::exchange(pending_save_, nullptr);  // finished once, also where that fails
  if (!save) return;
  checkpoint::CheckpointWriter* const writer = save->writer();
  try {
    const FileSums sums = sums_of_all(save->finish(), comm_);  // all parts are there
    const std::vector<double> broken = comm::all_gather_values(comm_, {save->are_finite() ? 0.0 : 1.0});
    if (writer != nullptr) {
      const fs::path saved = writer->commit({.sums = sums,
                                             .last = std::exchange(last_saved_, writer->step()),
                                             .is_finite = std::ranges::max(broken) == 0});
      log::info("saved {}", saved.string());
      if (options_.save_total_limit > 0) {
        checkpoint::prune_checkpoints(inputs_.output_dir, options_.save_total_limit, save->best());
      }
    }
  } catch (...) {
    if (writer != nullptr && comm_.size() > 1) writer->leave();
    throw;
  }
  comm_.barrier();
}

// The folder may have an earlier model: from when its weights are replaced until all of this one is there, nothing is,
// because config.json comes last.
void Trainer::write_final_model() {
  const fs::path config = inputs_.output_dir / "config.json";
  const fs::path earlier = inputs_.output_dir / ".config.json.old";
  const bool is_moved = comm_.rank() == 0 && is_there(config);
  if (is_moved) {
    std::error_code error;
    fs::rename(config, earlier, error);
    require(!error, ErrorKind::kIo, "cannot rename {} to {}: {}", config.string(), earlier.string(), error.message());
    sync_directory(inputs_.output_dir);
  }
  comm_.barrier();
  TensorFiles files(inputs_.output_dir, TensorFiles::Write::kNow);
  const ino_t weights = file_number(inputs_.output_dir / tensors::kWeightsFile);
  try {
    write_model(inputs_.model, parameters_, files);
  } catch (...) {
    const bool is_earlier_whole = file_number(inputs_.output_dir / tensors::kWeightsFile) == weights;
    std::error_code ignored;
    if (is_moved && is_earlier_whole) fs::rename(earlier, config, ignored);
    throw;
  }
  if (comm_.rank() != 0) return;
  remove_other_weights(inputs_.output_dir);
  inputs_.write_companions(inputs_.output_dir);
  std::error_code ignored;
  fs::remove(earlier, ignored);
}

void Trainer::load_best_model() {
  const auto& best = state_.best_model.kept;
  if (!options_.load_best_model_at_end || !best || best->step == state_.step) return;
  const bool is_rank_0 = comm_.rank() == 0;
  if (comm::all_gather_values(comm_, {is_there(best_folder_) ? 1.0 : 0.0}).front() == 0) {
    if (is_rank_0) {
      log::warning(
          "the best model, {} = {} at step {}, cannot be loaded, for its checkpoint{} is not there any more: "
          "the weights are the last ones",
          options_.best_metric_name(), best->metric, best->step,
          best_folder_.empty() ? "" : " " + best_folder_.string());
    }
    history_.best_model_checkpoint.reset();
    report_.best_kept.reset();
    return;
  }
  log::info("loading the best model, {} = {} at step {}", options_.best_metric_name(), best->metric, best->step);
  if (is_rank_0) checkpoint::verify_model_files(best_folder_);
  comm_.barrier();
  read_model(inputs_.model, parameters_, best_folder_);
}

void Trainer::finish(double seconds) {
  report_.steps = state_.step;
  if (scaler_) report_.skipped_steps = state_.skipped_steps;
  report_.trained_parameters = inputs_.model.num_trained_parameters();
  report_.parameters = inputs_.model.num_parameters();
  report_.epochs = epoch_now();
  report_.mean_loss = state_.step == 0 ? 0 : state_.loss_sum / static_cast<double>(state_.step);
  report_.seconds = seconds;
  report_.samples_per_second = static_cast<double>(sequences_done_) / seconds;
  report_.tokens_per_second = static_cast<double>(tokens_done_) / seconds;
  report_.best_kept = state_.best_model.kept;
  Json closing{{"train_loss", report_.mean_loss},
               {"train_runtime", seconds},
               {"train_samples_per_second", report_.samples_per_second},
               {"train_steps_per_second", static_cast<double>(steps_done_) / seconds},
               {"train_tokens_per_second", report_.tokens_per_second},
               {"total_flos", state_.flops}};
  // A finished run that is resumed has nothing to do: what it took stays on record.
  if (sequences_done_ == 0) closing = earlier_closing(inputs_.output_dir, closing);
  log_entry(std::move(closing));
  stepper_.release_buffers();
  load_best_model();
  write_final_model();
  if (comm_.rank() == 0) {
    history_.global_step = state_.step;
    history_.epoch = epoch_now();
    history_.total_flos = state_.flops;
    write_file_atomically(inputs_.output_dir / kHistoryFile, history_text());
  }
  comm_.barrier();
}

std::string Trainer::history_text() {
  const size_t before = history_.log_history.size();
  std::string text = monitor::to_json_text_within(kMaxHistoryBytes, history_);
  const size_t after = history_.log_history.size();
  if (after < before) {
    log::warning(
        "{} has no room for {} log entries: the newest {} stay; metrics.jsonl has all. A larger "
        "--logging_steps makes fewer",
        kHistoryFile, before, after);
  }
  return text;
}

}  // namespace strake::training
