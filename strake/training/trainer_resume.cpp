// How a Trainer goes on from a checkpoint.
#include <algorithm>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/training/trainer.h"

namespace strake::training {

namespace fs = std::filesystem;

void Trainer::resume() {
  const fs::path& folder = *inputs_.resume_from;
  state_ = read_run(inputs_.model, parameters_, inputs_.fingerprint, folder);
  history_ = read_history(folder);
  require(history_.global_step == state_.step, ErrorKind::kConfig,
          "{}: trainer_state.json is of step {}, strake_state.json of step {}", folder.string(), history_.global_step,
          state_.step);
  if (comm_.rank() != 0) history_.log_history = Json::array();
  require(state_.cursor.position < inputs_.train.size(), ErrorKind::kConfig,
          "{}: strake_state.json: sequence {} of an epoch is the next one, and the data has {}", folder.string(),
          state_.cursor.position, inputs_.train.size());
  require(state_.skipped_steps == 0 || scaler_, ErrorKind::kConfig,
          "{}: strake_state.json: {} steps skipped without fp16", folder.string(), state_.skipped_steps);
  if (scaler_) scaler_->restore(state_.loss_scaler);
  if (!best_.restore(state_.best_model)) {
    if (comm_.rank() == 0 && state_.best_model.best) {
      log::warning(
          "resumed from {} with another --metric_for_best_model, --greater_is_better, validation data or way to "
          "evaluate: {} was {} so far; the best model is looked for anew",
          folder.string(), state_.best_model.metric, state_.best_model.best->metric);
    }
    state_.best_model = best_.state();
    history_.best_metric.reset();
    history_.best_global_step.reset();
    history_.best_model_checkpoint.reset();
  }
  stop_ = best_.is_out_of_patience();
  last_saved_ = state_.step;
  keeps_best_ = keeps_best_ || history_.best_model_checkpoint.has_value();
  if (state_.best_model.kept && keeps_best_) find_best_folder();
  if (comm_.rank() != 0) return;
  log::info("going on from {}, behind step {}", folder.string(), state_.step);
}

// The folder may have been moved, or the run begun in another one, where others may have been since: its history tells.
void Trainer::find_best_folder() {
  const BestModel::Evaluation& best = *state_.best_model.kept;
  const fs::path beside = (*inputs_.resume_from / ".." / checkpoint::folder_name(best.step)).lexically_normal();
  for (const fs::path& folder : {beside, fs::path(history_.best_model_checkpoint.value_or(""))}) {
    if (!is_there(folder / kHistoryFile)) continue;
    const auto history = read_history(folder).log_history;
    const bool is_found = std::ranges::any_of(history, [&](const Json& entry) {
      return entry.contains(best_.state().metric) && entry[best_.state().metric] == best.metric &&
             entry.contains("step") && entry["step"] == best.step;
    });
    if (!is_found) continue;
    if (comm_.rank() == 0) verify_best(folder);
    best_folder_ = folder;
    return;
  }
  history_.best_model_checkpoint.reset();
  // A later one, which is lost now, may have been better, so that this one was removed: then it comes again.
  if (!options_.load_best_model_at_end || comm_.rank() != 0) return;
  log::warning(
      "--load_best_model_at_end: the best checkpoint of the run that {} continues, with {} = {} at step {}, is not "
      "there any more: {}. Unless a better one comes, the run ends with its last weights",
      inputs_.resume_from->string(), best_.state().metric, best.metric, best.step, beside.string());
}

// Now, not when all steps are done. Only --load_best_model_at_end reads it: a run goes on without.
void Trainer::verify_best(const fs::path& folder) const {
  try {
    checkpoint::verify_model_files(folder);
  } catch (const Error& error) {
    if (options_.load_best_model_at_end) throw;
    log::warning("the best checkpoint so far, {} = {} at step {}, is damaged: {}", best_.state().metric,
                 state_.best_model.kept->metric, state_.best_model.kept->step, error.what());
  }
}

void Trainer::tell_of_changes(const std::string& changes) const {
  const std::string source = inputs_.resume_from->string();
  if (state_.step < total_steps_) {
    if (!changes.empty()) {
      log::warning("resumed from {} with other settings from step {} on: {}", source, state_.step + 1, changes);
    }
    warn_of_later_checkpoints();
    return;
  }
  log::info("{} is behind step {} and the run has {}: nothing is left to train", source, state_.step, total_steps_);
  if (changes.empty()) return;
  log::warning("other settings than those of {} change nothing, for the model stays that of step {}: {}", source,
               state_.step, changes);
}

void Trainer::warn_of_later_checkpoints() const {
  std::vector<std::string> later;
  for (const auto& folder : checkpoint::list_checkpoints(inputs_.output_dir)) {
    if (folder.step > state_.step) later.push_back(folder.path.filename().string());
  }
  if (later.empty()) return;
  log::warning("{}: {} {} of later steps than {}, from which the run goes on; its first checkpoint replaces {}",
               inputs_.output_dir.string(), fmt::join(later, ", "), later.size() == 1 ? "is" : "are", state_.step,
               later.size() == 1 ? "it" : "them");
}

}  // namespace strake::training
