#include "strake/training/trainer.h"

#include <algorithm>
#include <cmath>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/core/memory.h"
#include "strake/training/model_files.h"
#include "strake/training/step_settings.h"

namespace strake::training {
namespace {

namespace fs = std::filesystem;

monitor::PackedWork work_of(const data::TokenDataset& dataset, const data::GlobalStep& step) {
  monitor::PackedWork work;
  for (const data::MicroBatch& batch : step.micro_batches) {
    for (const int64_t i : batch) {
      const auto length = static_cast<double>(dataset.length(i));
      work += {.tokens = length, .sequences = 1, .squared_lengths = length * length};
    }
  }
  return work;
}

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

}  // namespace

data::BatchOptions batch_options(const TrainingOptions& options) {
  return {.sequences = options.per_device_train_batch_size,
          .max_tokens = options.max_tokens_per_batch,
          .last = options.dataloader_drop_last ? data::LastBatch::kDrop : data::LastBatch::kKeep,
          .seed = options.order_seed()};
}

RunLength run_length(const TrainingOptions& options, const data::BatchPlan& plan, int64_t num_ranks) {
  const int64_t steps_per_epoch = plan.steps_per_epoch(0, num_ranks * options.gradient_accumulation_steps);
  const double steps = std::ceil(options.num_train_epochs * static_cast<double>(steps_per_epoch));
  return {.steps_per_epoch = steps_per_epoch,
          .total_steps = options.max_steps > 0 ? options.max_steps : static_cast<int64_t>(steps)};
}

int64_t total_steps(const TrainingOptions& options, const data::TokenDataset& train, int64_t num_ranks) {
  return run_length(options, data::BatchPlan(train.offsets(), batch_options(options)), num_ranks).total_steps;
}

Trainer::Trainer(TrainerInputs inputs, ShardedParameters& parameters, comm::Comm& comm, TrainingOptions options)
    : inputs_(std::move(inputs)),
      parameters_(parameters),
      comm_(comm),
      options_(std::move(options)),
      plan_(inputs_.train.offsets(), batch_options(options_)),
      stepper_(inputs_.model, parameters, comm, options_),
      best_({.metric = options_.best_metric_name(),
             .larger_is_better = options_.larger_is_better(),
             .threshold = options_.early_stopping_threshold,
             .patience = options_.early_stopping_patience,
             .data = inputs_.evaluation_data}) {
  if (options_.precision() == Precision::kFp16) scaler_.emplace(options_.loss_scaling);
  stepper_.ask_for_end(inputs_.is_asked_to_end);
  if (inputs_.resume_from) resume();
  plan_length();
  const Json settings = step_settings(options_, total_steps_);
  const std::string changes = changed_settings(state_.settings, settings);
  if (!changes.empty() && comm_.rank() == 0) {
    log::warning("resumed from {} with other settings from step {} on: {}", inputs_.resume_from->string(),
                 state_.step + 1, changes);
  }
  state_.settings = settings;
}

void Trainer::plan_length() {
  const RunLength length = run_length(options_, plan_, comm_.size());
  total_steps_ = length.total_steps;
  schedule_.emplace(options_.schedule_options(total_steps_));
  history_.max_steps = total_steps_;
  history_.num_train_epochs = options_.max_steps > 0
                                  ? (total_steps_ + length.steps_per_epoch - 1) / length.steps_per_epoch
                                  : static_cast<int64_t>(std::ceil(options_.num_train_epochs));
  history_.train_batch_size = options_.per_device_train_batch_size;
  const StepIntervals intervals = options_.step_intervals(total_steps_);
  history_.logging_steps = intervals.logging;
  history_.save_steps = intervals.saving;
  history_.eval_steps = intervals.evaluation;
}

TrainReport Trainer::run() {
  const auto start = Clock::now();
  return_freed_memory();  // of what was loaded
  const int64_t per_step = comm_.size() * options_.gradient_accumulation_steps;
  while (state_.step < total_steps_ && !stop_) {
    const data::GlobalStep global = plan_.next_step(state_.cursor, per_step);
    const int64_t updates = state_.step - state_.skipped_steps;
    const StepReport step = stepper_.run(inputs_.train, global,
                                         {.number = state_.step + 1,
                                          .skipped = state_.skipped_steps,
                                          .learning_rate = schedule_->at(updates),
                                          .betas = schedule_->betas_at(updates),
                                          .loss_scale = scaler_ ? scaler_->scale() : 1});
    const bool epoch_ended = global.next.epoch != state_.cursor.epoch;
    state_.step = step.step;
    state_.cursor = global.next;
    state_.flops += inputs_.training_flops(work_of(inputs_.train, global));
    if (scaler_) update_loss_scale(step);
    const bool is_saved = after_step(step, epoch_ended);
    if (!step.ends_run || state_.step == total_steps_ || stop_) continue;
    if (!is_saved) save();
    report_.is_interrupted = true;
    report_.steps = state_.step;
    return report_;
  }
  finish(seconds_since(start));
  return report_;
}

void Trainer::update_loss_scale(const StepReport& step) {
  scaler_->update(step.skipped);
  state_.loss_scaler = scaler_->state();
  if (!step.skipped) return;
  ++state_.skipped_steps;
  if (comm_.rank() != 0) return;
  log::info("step {} is skipped: its gradient overflowed at loss scale {:.17g}; the next has {:.17g}", step.step,
            step.loss_scale, scaler_->scale());
}

bool Trainer::after_step(const StepReport& step, bool epoch_ended) {
  // As Transformers' logging_nan_inf_filter: a loss that overflowed counts as the mean of those before it.
  const double before =
      state_.steps_since_log == 0 ? 0 : state_.loss_since_log / static_cast<double>(state_.steps_since_log);
  const double loss = std::isfinite(step.loss) ? step.loss : before;
  state_.loss_since_log += loss;
  state_.steps_since_log += 1;
  state_.loss_sum += loss;
  sequences_done_ += step.sequences;
  tokens_done_ += step.tokens;
  if (inputs_.listener != nullptr) inputs_.listener->on_step(step, epoch_now(), total_steps_);
  const bool first = options_.logging_first_step && state_.step == 1;
  if (first ||
      due(parse_interval(options_.logging_strategy, "logging_strategy"), history_.logging_steps, epoch_ended)) {
    log_training(step);
  }
  const bool evaluated = due(parse_interval(options_.eval_strategy, "eval_strategy"), history_.eval_steps, epoch_ended);
  const bool saves = due(parse_interval(options_.save_strategy, "save_strategy"), history_.save_steps, epoch_ended);
  if (evaluated) evaluate_now();
  // The best checkpoint is recorded before it is saved, so that the saved state already knows of it.
  if (evaluated) track_best(saves);
  if (saves) save();
  return saves;
}

bool Trainer::due(Interval interval, int64_t every, bool epoch_ended) const {
  switch (interval) {
    case Interval::kNo:
      return false;
    case Interval::kSteps:
      return state_.step % every == 0;
    case Interval::kEpoch:
      return epoch_ended || state_.step == total_steps_;
  }
  return false;
}

double Trainer::epoch_now() const {
  return static_cast<double>(state_.cursor.epoch) +
         static_cast<double>(state_.cursor.position) / static_cast<double>(inputs_.train.size());
}

void Trainer::log_training(const StepReport& step) {
  const double mean = state_.loss_since_log / static_cast<double>(state_.steps_since_log);
  state_.loss_since_log = 0;
  state_.steps_since_log = 0;
  Json entry{{"loss", mean},
             {"grad_norm", step.gradient_norm},
             {"learning_rate", step.learning_rate},
             {"step_seconds", step.seconds},
             {"sequences", step.sequences},
             {"tokens", step.tokens}};
  if (step.skipped) entry.erase("grad_norm");  // JSON has no infinity
  if (scaler_) {
    entry["loss_scale"] = step.loss_scale;
    entry["skipped_steps"] = state_.skipped_steps;
  }
  log_entry(std::move(entry));
}

void Trainer::log_entry(Json entry) {
  entry["epoch"] = epoch_now();
  entry["step"] = state_.step;
  history_.log_history.push_back(entry);
  if (inputs_.listener != nullptr) inputs_.listener->on_log(entry);
}

void Trainer::evaluate_now() {
  report_.last_evaluation = inputs_.evaluate();
  const Evaluation& evaluation = *report_.last_evaluation;
  Json entry{{"eval_loss", evaluation.loss},
             {"eval_runtime", evaluation.seconds},
             {"eval_samples_per_second", static_cast<double>(evaluation.sequences) / evaluation.seconds}};
  for (const auto& [name, value] : evaluation.metrics) entry["eval_" + name] = value;
  log_entry(std::move(entry));
}

void Trainer::track_best(bool is_saved) {
  const std::string name = options_.best_metric_name();
  const Json& entry = history_.log_history.back();
  require(entry.contains(name), ErrorKind::kInternal, "an evaluation without {}", name);
  const BestModel::Evaluation evaluation{.metric = entry[name].get<double>(), .step = state_.step};
  best_.add(evaluation);
  stop_ = best_.is_out_of_patience();
  if (stop_)
    log::info("no gain in {} evaluations: stopping at step {}", best_.state().evaluations_without_gain, state_.step);
  const bool is_kept = is_saved || stop_ || state_.step == total_steps_;
  if (is_kept && best_.keep(evaluation)) best_folder_ = inputs_.output_dir / checkpoint::folder_name(state_.step);
  state_.best_model = best_.state();
  if (!state_.best_model.best) return;
  history_.best_metric = state_.best_model.best->metric;
  history_.best_global_step = state_.best_model.best->step;
}

void Trainer::save() {
  stepper_.release_buffers();  // room for the blocks that are gathered to be written
  std::optional<checkpoint::CheckpointWriter> writer;
  if (comm_.rank() == 0) writer.emplace(inputs_.output_dir, state_.step);
  comm_.barrier();  // the folder is there
  const fs::path folder = checkpoint::temporary_folder(inputs_.output_dir, state_.step);
  try {
    write_run(inputs_.model, parameters_, state_, inputs_.fingerprint, folder);
  } catch (const Error&) {
    if (writer) writer->leave();  // the others write into it, and would report as the error that it is gone
    throw;
  }
  comm_.barrier();  // all parts are there
  const bool keeps_best = options_.load_best_model_at_end && state_.best_model.kept.has_value();
  if (keeps_best) history_.best_model_checkpoint = best_folder_.string();
  history_.global_step = state_.step;
  history_.epoch = epoch_now();
  history_.total_flos = state_.flops;
  if (writer) {
    inputs_.write_companions(folder);
    write_file_atomically(folder / kHistoryFile, monitor::to_json_text(history_));
    checkpoint::remove_later_checkpoints(inputs_.output_dir, state_.step);
    const fs::path saved = writer->commit();
    log::info("saved {}", saved.string());
    if (options_.save_total_limit > 0) {
      checkpoint::prune_checkpoints(inputs_.output_dir, options_.save_total_limit,
                                    keeps_best ? std::optional(best_folder_) : std::nullopt);
    }
  }
  comm_.barrier();
}

// The folder may have an earlier model: until all of this one is there, nothing is, because config.json comes last.
void Trainer::write_final_model() {
  const fs::path config = inputs_.output_dir / "config.json";
  const fs::path earlier = inputs_.output_dir / ".config.json.old";
  if (comm_.rank() == 0 && is_there(config)) {
    std::error_code error;
    fs::rename(config, earlier, error);
    require(!error, ErrorKind::kIo, "cannot rename {} to {}: {}", config.string(), earlier.string(), error.message());
    sync_directory(inputs_.output_dir);
  }
  comm_.barrier();
  write_model(inputs_.model, parameters_, inputs_.output_dir);
  if (comm_.rank() != 0) return;
  remove_other_weights(inputs_.output_dir);
  inputs_.write_companions(inputs_.output_dir);
  std::error_code ignored;
  fs::remove(earlier, ignored);
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
               {"train_tokens_per_second", report_.tokens_per_second},
               {"total_flos", state_.flops}};
  // A finished run that is resumed has nothing to do: what it took stays on record.
  if (sequences_done_ == 0) closing = earlier_closing(inputs_.output_dir, closing);
  log_entry(std::move(closing));
  stepper_.release_buffers();
  const auto& best = state_.best_model.kept;
  if (options_.load_best_model_at_end && best && best->step != state_.step) {
    log::info("loading the best model, {} = {} at step {}", options_.best_metric_name(), best->metric, best->step);
    if (comm_.rank() == 0) checkpoint::verify_model_files(best_folder_);
    comm_.barrier();
    read_model(inputs_.model, parameters_, best_folder_);
  }
  write_final_model();
  if (comm_.rank() == 0) {
    history_.global_step = state_.step;
    history_.epoch = epoch_now();
    history_.total_flos = state_.flops;
    write_file_atomically(inputs_.output_dir / kHistoryFile, monitor::to_json_text(history_));
  }
  comm_.barrier();
}

}  // namespace strake::training
