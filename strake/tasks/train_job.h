#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/data/token_dataset.h"
#include "strake/models/encoder/config.h"
#include "strake/tasks/train.h"
#include "strake/training/evaluator.h"

namespace strake::tasks {

// What a task of any kind trains on.
struct JobInputs {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  data::TokenDataset train = data::TokenDatasetBuilder("").build();
  std::optional<data::TokenDataset> evaluation = std::nullopt;
};

// What one kind of task gives to a training run: a model and its data. Made once per process, before ranks start, and
// shared by them: thread-safe.
class TrainJob {
 public:
  TrainJob(const TrainConfig& config, JobInputs inputs)
      : inputs_(std::move(inputs)),
        weights_(config.model_name_or_path),
        ignores_mismatched_sizes_(config.ignore_mismatched_sizes),
        eval_batch_size_(config.training.per_device_eval_batch_size) {}
  virtual ~TrainJob() = default;

  const data::TokenDataset& train_data() const { return inputs_.train; }
  const std::shared_ptr<const tokenizers::Tokenizer>& tokenizer() const { return inputs_.tokenizer; }
  // The checkpoint that training starts from; empty: from initial values.
  const std::filesystem::path& weights() const { return weights_; }
  // Of its head.
  bool ignores_mismatched_sizes() const { return ignores_mismatched_sizes_; }
  bool has_evaluation() const { return inputs_.evaluation.has_value(); }
  // Numbers that an evaluation keeps of each row until all are there.
  virtual int64_t outputs_of_row() const { return 0; }
  const data::TokenDataset& evaluation_data() const { return *inputs_.evaluation; }
  // Of what evaluations need in memory beside that.
  virtual int64_t evaluation_bytes() const { return 0; }
  int64_t eval_batch_size() const { return eval_batch_size_; }

  virtual const models::Model& model() const = 0;
  // "bert with 109483778 parameters and 2 labels", for the log.
  virtual std::string describe() const = 0;
  // Collective.
  virtual training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const = 0;
  virtual int64_t hidden_size() const = 0;
  // What must not change between start and resume, besides what every run has.
  virtual Json fingerprint() const { return Json::object(); }
  // What its metrics depend on, besides model and data.
  virtual Json evaluation_settings() const { return Json::object(); }
  // What tokenizer_config.json of the trained model says otherwise than that of the tokenizer.
  virtual Json tokenizer_settings() const { return Json::object(); }
  // The content of config.json of the trained model.
  virtual std::string config_json() const = 0;

 private:
  JobInputs inputs_;
  std::filesystem::path weights_;
  bool ignores_mismatched_sizes_;
  int64_t eval_batch_size_;
};

// The one that --tokenizer_name names, or else the model's.
std::shared_ptr<const tokenizers::Tokenizer> load_tokenizer(const TrainConfig& config);

// choose_sequence_length() of the flags.
int64_t sequence_length(const TrainConfig& config, int64_t by_default, const models::EncoderConfig& model,
                        const tokenizers::Tokenizer& tokenizer);

// Reads model and data for --task sequence-classification; `workers` threads tokenize.
std::unique_ptr<TrainJob> make_classifier_job(const TrainConfig& config, int workers);
// The same for --task token-classification, question-answering, causal-lm and masked-lm.
std::unique_ptr<TrainJob> make_token_classifier_job(const TrainConfig& config, int workers);
std::unique_ptr<TrainJob> make_question_answerer_job(const TrainConfig& config, int workers);
std::unique_ptr<TrainJob> make_causal_lm_job(const TrainConfig& config, int workers);
std::unique_ptr<TrainJob> make_masked_lm_job(const TrainConfig& config, int workers);

// Error (kUsage) if there are token files for a task that reads `what` instead.
void refuse_token_files(const TrainConfig& config, const std::string& what);

bool reads_text(const TrainConfig& config);
// Error (kUsage) if a flag that says how text is read was given, and no file has any: it was read and cut when token
// files were made.
void require_flags_of_text(const TrainConfig& config);

// Error (kUsage) with the nearest name if the best model is looked for by a metric that evaluations of `what` lack:
// they report the loss and `metrics`.
void require_known_metric(const training::TrainingOptions& options, const std::string& what,
                          const std::vector<std::string>& metrics);

// A line about each flag that was given and changes nothing, for evaluations or the optimizer that it is about are not
// there. After --deepspeed was applied.
std::vector<std::string> flags_without_effect(const TrainConfig& config);

}  // namespace strake::tasks
