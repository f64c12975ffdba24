#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "strake/comm/comm.h"
#include "strake/core/error.h"
#include "strake/data/batch_plan.h"
#include "strake/data/token_dataset.h"
#include "strake/models/model.h"
#include "strake/monitor/trainer_state.h"
#include "strake/optim/learning_rate.h"
#include "strake/training/best_model.h"
#include "strake/training/evaluator.h"
#include "strake/training/pending_save.h"
#include "strake/training/run_checkpoint.h"
#include "strake/training/stepper.h"

namespace strake::training {

// How far a run has come.
struct RunProgress {
  int64_t steps = 0;
  int64_t sequences = 0;
  bool is_whole = false;       // no step is left
  std::vector<Json> log = {};  // its entries; on rank 0
};

// What a run tells the outside, on rank 0 only.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void on_step(const StepReport& report, double epoch, int64_t total_steps) = 0;
  // A log entry as in trainer_state.json: training, evaluation or closing.
  virtual void on_log(const Json& entry) = 0;
};

// How a run's data is cut into micro-batches.
data::BatchOptions batch_options(const TrainingOptions& options);

struct RunLength {
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
};

// Optimizer steps of a whole run; of the data at least one, or data::BatchPlan has refused it. Where batches are cut by
// tokens each epoch is gone through, by the calling thread's number of threads: Error (kUsage) if these are too many.
RunLength run_length(const TrainingOptions& options, const data::TokenDataset& train, int64_t num_ranks);
// Whether there are checkpoints on its way that are due.
bool saves_before_the_end(const TrainingOptions& options, const RunLength& length);

struct TrainerInputs {
  const models::Model& model;
  const data::TokenDataset& train;
  std::optional<RunLength> length = std::nullopt;  // of the run under these options, if it is known already
  std::function<Evaluation()> evaluate;            // collective; empty: there is no evaluation
  Json evaluation = nullptr;                       // on what data and how: BestModelRule
  std::function<double(const models::BatchShape&)> training_flops = {};  // of a step
  std::filesystem::path output_dir;
  std::optional<std::filesystem::path> resume_from;  // a verified checkpoint folder
  Json fingerprint;                                  // what must not change between start and resume
  std::string kernels = {};                          // that compute: others round otherwise, which a resumed run tells
  // Rank 0: writes config.json and tokenizer files into a folder. Owns what it needs: a copy of it may be called by
  // another thread, which a run that ends with an error does not wait for.
  std::function<void(const std::filesystem::path&)> write_companions;
  RunListener* listener = nullptr;             // rank 0
  bool measures_parts = false;                 // of steps: StepReport::parts
  std::function<bool()> is_asked_to_end = {};  // any rank: save and end the run after this step
};

struct TrainReport {
  int64_t steps = 0;
  std::optional<int64_t> skipped_steps;  // of `steps`, in fp16: updated nothing because the gradient overflowed
  double epochs = 0;
  double mean_loss = 0;
  double seconds = 0;
  double samples_per_second = 0;
  double tokens_per_second = 0;
  int64_t trained_parameters = 0;
  int64_t parameters = 0;  // frozen ones too
  std::optional<BestModel::Evaluation> best_kept;
  std::optional<Evaluation> last_evaluation;
  std::optional<Evaluation> best_evaluation;  // of best_kept, if this start of the run made it
  bool is_interrupted = false;  // by inputs.is_asked_to_end, before the last step; the checkpoint of `steps` is there
};

// Fine-tunes a model: steps, logs, evaluations, checkpoints, early stopping, in the order of Hugging Face's Trainer. As
// there with DeepSpeed, a step that fp16 skips counts as a step of the data and of the run, but neither the optimizer
// nor the schedule of the learning rate goes on.
class Trainer {
 public:
  // The parameters hold the initial weights, or are filled from inputs.resume_from.
  Trainer(TrainerInputs inputs, ShardedParameters& parameters, comm::Comm& comm, TrainingOptions options);

  // Optimizer steps of the checkpoint that it goes on from, and of run() so far.
  RunProgress progress() const;

  // Collective. Ends with the final (or best) weights in `parameters` and in output_dir, unless it is interrupted.
  TrainReport run();

 private:
  void plan_length();
  // A step and what is due after it.
  void take_step();
  // Where the run breaks off with an error of this kind: finishes what is being saved, if it can.
  void keep_saved(ErrorKind end);
  // fp16: counts a skipped step and sets the scale of the next.
  void update_loss_scale(const StepReport& report);
  // Returns whether the step's checkpoint was saved.
  bool after_step(const StepReport& report, bool epoch_ended);
  void log_training(const StepReport& report);
  // Returns what is logged.
  Json evaluate_now();
  void track_best(const Json& entry, bool is_saved);
  // From the checkpoint inputs_.resume_from; sets best_folder_, and tells what becomes of checkpoints of later steps.
  void resume();
  void find_best_folder();
  void verify_best(const std::filesystem::path& folder) const;
  void warn_of_later_checkpoints() const;
  void tell_of_changes(const std::string& changes) const;  // of step_settings; "" if nothing changed
  // Where it is to be written later, goes on before it is.
  void save(TensorFiles::Write when);
  // Waits for the checkpoint that is being written, if there is one, and makes it one that counts. Collective.
  void finish_save();
  // Of --load_best_model_at_end. Collective.
  void load_best_model();
  void write_final_model();
  void finish(double seconds);
  void log_entry(Json entry);
  // trainer_state.json, as long as can be read again: older entries of a longer log are dropped.
  std::string history_text();
  double epoch_now() const;
  bool evaluates() const;
  bool evaluation_is_due(bool epoch_ended) const;
  bool is_due(const Recurrence& what, bool epoch_ended) const;

  TrainerInputs inputs_;
  ShardedParameters& parameters_;
  comm::Comm& comm_;
  TrainingOptions options_;
  data::BatchPlan plan_;
  Stepper stepper_;
  RunState state_;
  BestModel best_;
  bool keeps_best_ = false;            // also without the flags, if the run it goes on from did
  std::filesystem::path best_folder_;  // checkpoint of the best model kept
  int64_t last_saved_ = 0;             // step of the checkpoint written last or gone on from
  std::unique_ptr<PendingSave> pending_save_;
  monitor::TrainerState history_;
  int64_t total_steps_ = 0;
  StepIntervals intervals_;  // of that many
  std::optional<optim::LearningRateSchedule> schedule_;
  std::optional<optim::LossScaler> scaler_;  // fp16
  TrainReport report_;
  int64_t steps_done_ = 0;  // these three by this call
  int64_t sequences_done_ = 0;
  int64_t tokens_done_ = 0;
  bool stop_ = false;
};

}  // namespace strake::training
