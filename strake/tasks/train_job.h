#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "strake/core/json.h"
#include "strake/tasks/train.h"
#include "strake/training/evaluator.h"

namespace strake::tasks {

// What one kind of task gives to a training run: a model and its data. Made once per process, before ranks start, and
// shared by them: thread-safe.
class TrainJob {
 public:
  virtual ~TrainJob() = default;

  virtual const models::Model& model() const = 0;
  virtual const data::TokenDataset& train_data() const = 0;
  virtual const tokenizers::Tokenizer& tokenizer() const = 0;
  // "bert with 109483778 parameters and 2 labels", for the log.
  virtual std::string describe() const = 0;
  // The checkpoint that training starts from; empty: from initial values.
  virtual std::filesystem::path weights() const = 0;
  virtual bool has_evaluation() const = 0;
  // Collective.
  virtual training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const = 0;
  virtual int64_t hidden_size() const = 0;
  // What must not change between start and resume, besides what every run has.
  virtual Json fingerprint() const = 0;
  // The content of config.json of the trained model.
  virtual std::string config_json() const = 0;
};

// Reads model and data for --task sequence-classification; `workers` threads tokenize.
std::unique_ptr<TrainJob> make_classifier_job(const TrainConfig& config, int workers);
// The same for --task causal-lm.
std::unique_ptr<TrainJob> make_causal_lm_job(const TrainConfig& config, int workers);

// True if the first file is made by strake prepare; the others must be as well then.
bool are_token_files(const std::vector<std::string>& paths);

// Error (kConfig) naming the file for a token that the model's vocabulary lacks.
void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path);

}  // namespace strake::tasks
