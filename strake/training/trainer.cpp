#include "strake/training/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <string_view>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/memory.h"
#include "strake/core/threads.h"
#include "strake/tensors/foreign_error.h"
#include "strake/training/step_settings.h"

namespace strake::training {
data::BatchOptions batch_options(const TrainingOptions& options) {
  return {.sequences = options.per_device_train_batch_size,
          .max_tokens = options.max_tokens_per_batch,
          .last = options.dataloader_drop_last ? data::LastBatch::kDrop : data::LastBatch::kKeep,
          .seed = options.order_seed()};
}

namespace {

// Epochs of batches that are cut by tokens are gone through to count their steps, a microsecond or so for a sequence.
void check_count(const TrainingOptions& options, int64_t sequences_of_epoch) {
  constexpr double kTold = 1e7;
  constexpr double kMost = 1e9;
  const double sequences = options.num_train_epochs * static_cast<double>(sequences_of_epoch);
  require(
      sequences <= kMost, ErrorKind::kUsage,
      "--num_train_epochs {} of {} sequences: with --max_tokens_per_batch their steps are counted, of at most {:.0f} "
      "sequences in all: give --max_steps instead",
      options.num_train_epochs, sequences_of_epoch, kMost);
  if (sequences > kTold) {
    log::info("counting the steps of {} epochs, which --max_tokens_per_batch cuts; with --max_steps that is not needed",
              options.num_train_epochs);
  }
}

}  // namespace

RunLength run_length(const TrainingOptions& options, const data::TokenDataset& train, int64_t num_ranks) {
  const data::BatchPlan plan(train.offsets(), batch_options(options));
  const int64_t per_step = num_ranks * options.gradient_accumulation_steps;
  RunLength length{.steps_per_epoch = plan.steps_per_epoch(0, per_step), .total_steps = options.max_steps};
  if (options.max_steps > 0) return length;
  const auto share_of = [](double epochs, int64_t steps) {
    return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(steps)));
  };
  length.total_steps = share_of(options.num_train_epochs, length.steps_per_epoch);
  if (options.max_tokens_per_batch == 0) return length;
  check_count(options, train.size());
  // Epochs differ in their order, and so in how many batches are full.
  const auto whole_epochs = static_cast<int64_t>(std::floor(options.num_train_epochs));
  const double rest = options.num_train_epochs - static_cast<double>(whole_epochs);
  std::atomic<int64_t> steps = 0;
  parallel_for(whole_epochs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t epoch = begin; epoch < end; ++epoch) steps += plan.steps_per_epoch(epoch, per_step);
  });
  length.total_steps = steps;
  if (rest > 0) length.total_steps += share_of(rest, plan.steps_per_epoch(whole_epochs, per_step));
  return length;
}

bool saves_before_the_end(const TrainingOptions& options, const RunLength& length) {
  const Recurrence saving = options.step_intervals(length.total_steps).saving;
  switch (saving.interval) {
    case Interval::kNo:
      return false;
    case Interval::kSteps:
      return saving.steps < length.total_steps;
    case Interval::kEpoch:
      return length.steps_per_epoch < length.total_steps;
  }
  return false;
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
             .evaluation = inputs_.evaluation}) {
  keeps_best_ = options_.keeps_best();
  if (options_.precision() == Precision::kFp16) scaler_.emplace(options_.loss_scaling);
  stepper_.ask({.is_asked_to_end = inputs_.is_asked_to_end,
                .is_saving = [this] { return pending_save_ && !pending_save_->is_over(); }});
  if (inputs_.measures_parts) stepper_.measure_parts();
  if (inputs_.resume_from) resume();
  plan_length();
  Json settings = step_settings(options_, total_steps_);
  settings["kernels"] = inputs_.kernels;
  if (inputs_.resume_from && comm_.rank() == 0) tell_of_changes(changed_settings(state_.settings, settings));
  state_.settings = settings;
}

void Trainer::plan_length() {
  const RunLength length = inputs_.length ? *inputs_.length : run_length(options_, inputs_.train, comm_.size());
  total_steps_ = length.total_steps;
  schedule_.emplace(options_.schedule_options(total_steps_));
  history_.max_steps = total_steps_;
  history_.num_train_epochs = options_.max_steps > 0
                                  ? (total_steps_ + length.steps_per_epoch - 1) / length.steps_per_epoch
                                  : static_cast<int64_t>(std::ceil(options_.num_train_epochs));
  history_.train_batch_size = options_.per_device_train_batch_size;
  intervals_ = options_.step_intervals(total_steps_);
  history_.logging_steps = intervals_.logging.steps;
  history_.save_steps = intervals_.saving.steps;
  history_.eval_steps = intervals_.evaluation.steps;
}

TrainReport Trainer::run() {
  const auto start = Clock::now();
  return_freed_memory();  // of what was loaded
  try {
    if (options_.eval_on_start && evaluates() && state_.step == 0) evaluate_now();
    while (state_.step < total_steps_ && !stop_ && !report_.is_interrupted) take_step();
  } catch (...) {
    keep_saved(tensors::as_error(std::current_exception()).kind());
    throw;
  }
  finish_save();
  if (report_.is_interrupted) {
    report_.steps = state_.step;
  } else {
    finish(seconds_since(start));
  }
  return report_;
}

void Trainer::keep_saved(ErrorKind end) {
  // Of other errors not all ranks know yet, and a save is finished by all of them together.
  const bool all_know = comm_.size() == 1 || end == ErrorKind::kNumeric;
  if (!all_know) {
    // Others still write into the folder, and would report as the error that it is gone.
    if (pending_save_ && pending_save_->writer() != nullptr) pending_save_->writer()->leave();
    return;
  }
  try {
    finish_save();
  } catch (...) {
    log::warning("{}", tensors::as_error(std::current_exception()).what());
  }
}

void Trainer::take_step() {
  const int64_t per_step = comm_.size() * options_.gradient_accumulation_steps;
  const data::GlobalStep global = plan_.next_step(state_.cursor, per_step);
  const int64_t updates = state_.step - state_.skipped_steps;
  const StepReport step = stepper_.run(inputs_.train, global,
                                       {.number = state_.step + 1,
                                        .skipped = state_.skipped_steps,
                                        .learning_rate = schedule_->at(updates),
                                        .betas = schedule_->betas_at(updates),
                                        .loss_scale = scaler_ ? scaler_->scale() : 1});
  if (!step.is_saving) finish_save();
  const bool epoch_ended = global.next.epoch != state_.cursor.epoch;
  state_.step = step.step;
  state_.cursor = global.next;
  state_.flops += inputs_.training_flops(step.batch);
  if (scaler_) update_loss_scale(step);
  const bool is_saved = after_step(step, epoch_ended);
  if (!step.ends_run || state_.step == total_steps_ || stop_) return;
  if (!is_saved) save(TensorFiles::Write::kNow);
  report_.is_interrupted = true;
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
  ++steps_done_;
  sequences_done_ += step.batch.sequences;
  tokens_done_ += step.batch.tokens;
  history_.num_input_tokens_seen += step.batch.tokens;
  if (inputs_.listener != nullptr) inputs_.listener->on_step(step, epoch_now(), total_steps_);
  const bool first = options_.logging_first_step && state_.step == 1;
  if (first || is_due(intervals_.logging, epoch_ended)) log_training(step);
  const bool is_last = state_.step == total_steps_;
  const bool evaluated = evaluation_is_due(epoch_ended);
  const bool saving_is_due = is_due(intervals_.saving, epoch_ended);
  const bool saves_last = intervals_.saving.interval != Interval::kNo;
  // The best checkpoint is recorded before it is saved, so that the saved state already knows of it.
  if (evaluated) track_best(evaluate_now(), saving_is_due || (is_last && saves_last));
  const bool saves = saving_is_due || ((is_last || stop_) && saves_last);
  const bool goes_on = !is_last && !stop_ && !step.ends_run;
  if (saves) save(options_.async_save && goes_on ? TensorFiles::Write::kLater : TensorFiles::Write::kNow);
  return saves;
}

bool Trainer::is_due(const Recurrence& what, bool epoch_ended) const {
  switch (what.interval) {
    case Interval::kNo:
      return false;
    case Interval::kSteps:
      return state_.step % what.steps == 0;
    case Interval::kEpoch:
      return epoch_ended || state_.step == total_steps_;
  }
  return false;
}

bool Trainer::evaluates() const { return intervals_.evaluation.interval != Interval::kNo; }

bool Trainer::evaluation_is_due(bool epoch_ended) const {
  if (evaluates() && state_.step == total_steps_) return true;
  const bool by_epoch = intervals_.evaluation.interval == Interval::kEpoch;
  const double passed = by_epoch ? epoch_now() : static_cast<double>(state_.step);
  return passed >= options_.eval_delay && is_due(intervals_.evaluation, epoch_ended);
}

RunProgress Trainer::progress() const {
  return {.steps = state_.step,
          .sequences = state_.cursor.epoch * inputs_.train.size() + state_.cursor.position,
          .is_whole = state_.step >= total_steps_,
          .log = history_.log_history};
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
             {"sequences", step.batch.sequences},
             {"tokens", step.batch.tokens}};
  if (step.skipped) entry.erase("grad_norm");  // JSON has no infinity
  if (step.parts) {
    entry["forward_seconds"] = step.parts->forward;
    entry["backward_seconds"] = step.parts->backward;
    entry["reduction_seconds"] = step.parts->reduction;
    entry["update_seconds"] = step.parts->update;
  }
  if (scaler_) {
    entry["loss_scale"] = step.loss_scale;
    entry["skipped_steps"] = state_.skipped_steps;
  }
  log_entry(std::move(entry));
}

void Trainer::log_entry(Json entry) {
  entry["epoch"] = epoch_now();
  entry["step"] = state_.step;
  if (inputs_.listener != nullptr) inputs_.listener->on_log(entry);
  if (comm_.rank() == 0) history_.log_history.push_back(std::move(entry));  // which writes it
}

Json Trainer::evaluate_now() {
  report_.last_evaluation = inputs_.evaluate();
  take_that_of_first(*report_.last_evaluation, comm_);
  const Evaluation& evaluation = *report_.last_evaluation;
  const auto sequences = static_cast<double>(evaluation.sequences);
  const double batches = std::ceil(sequences / static_cast<double>(options_.per_device_eval_batch_size * comm_.size()));
  Json entry{{"eval_loss", evaluation.loss},
             {"eval_runtime", evaluation.seconds},
             {"eval_samples_per_second", sequences / evaluation.seconds},
             {"eval_steps_per_second", batches / evaluation.seconds}};
  for (const auto& [name, value] : evaluation.metrics) entry["eval_" + name] = value;
  log_entry(entry);
  return entry;
}

void Trainer::track_best(const Json& entry, bool is_saved) {
  const std::string name = options_.best_metric_name();
  require(entry.contains(name), ErrorKind::kInternal, "an evaluation without {}", name);
  const BestModel::Evaluation evaluation{.metric = entry[name].get<double>(), .step = state_.step};
  best_.add(evaluation);
  stop_ = best_.is_out_of_patience();
  if (stop_)
    log::info("no gain in {} evaluations: stopping at step {}", best_.state().evaluations_without_gain, state_.step);
  const bool is_kept = is_saved || stop_ || state_.step == total_steps_;
  if (is_kept && best_.keep(evaluation)) {
    best_folder_ = inputs_.output_dir / checkpoint::folder_name(state_.step);
    report_.best_evaluation = report_.last_evaluation;
  }
  state_.best_model = best_.state();
  if (!keeps_best_ || !state_.best_model.best) return;
  history_.best_metric = state_.best_model.best->metric;
  history_.best_global_step = state_.best_model.best->step;
}

}  // namespace strake::training
