#include "strake/models/gpt2/gpt2.h"
#include "strake/rows/sequence_length.h"
#include "strake/tasks/causal_lm_config.h"
#include "strake/tasks/documents.h"
#include "strake/tasks/new_model_config.h"
#include "strake/tasks/train_job.h"

namespace strake::tasks {
namespace {

struct CausalLmSetup {
  models::Gpt2Config model_config;
  JobInputs inputs;
  int64_t block_size = 0;
};

CausalLmSetup load_causal_lm_setup(const TrainConfig& config, int workers) {
  CausalLmSetup setup{.model_config = read_causal_lm_config(config), .inputs = {.tokenizer = load_tokenizer(config)}};
  setup.block_size = rows::choose_block_size(config.block_size, setup.model_config);
  require_known_metric(config.training, "language models", {"perplexity"});
  require_flags_of_text(config);
  require_vocabulary_of(*setup.inputs.tokenizer, setup.model_config.vocab_size, config);
  if (config.model_name_or_path.empty()) {
    take_special_ids(setup.model_config.document, *setup.inputs.tokenizer, config.config_overrides);
  }
  const rows::TextOptions text{.text_column = config.text.text_column, .encoding = config.text.encoding};
  Splits splits = open_splits(config, text);
  const DocumentReading how{.tokenizer = setup.inputs.tokenizer,
                            .text_column = text.text_column,
                            .pieces = {.block_size = setup.block_size},
                            .vocab_size = setup.model_config.vocab_size,
                            .workers = workers};
  setup.inputs.train = read_documents(splits.train, how).pieces;
  if (!splits.evaluation.paths.empty()) setup.inputs.evaluation = read_documents(splits.evaluation, how).pieces;
  return setup;
}

class CausalLmJob final : public TrainJob {
 public:
  CausalLmJob(const TrainConfig& config, CausalLmSetup setup)
      : TrainJob(config, std::move(setup.inputs)),
        model_(std::move(setup.model_config), config.training.label_smoothing_factor),
        block_size_(setup.block_size) {
    training::freeze_parameters(model_, config.training.frozen);
  }

  const models::Model& model() const override { return model_; }
  std::string describe() const override {
    return fmt::format("gpt2 with {} parameters, {}; pieces of {} tokens at most", model_.num_parameters(),
                       weights().empty() ? "from scratch" : "from " + weights().string(), block_size_);
  }
  training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const override {
    return training::evaluate_language_model(
        {model_, parameters, comm, evaluation_data(), {.sequences = eval_batch_size()}});
  }
  int64_t hidden_size() const override { return model_.config().hidden_size; }
  Json fingerprint() const override { return {{"block_size", block_size_}}; }
  std::string config_json() const override { return models::to_json_text(model_.config(), "float32"); }

 private:
  models::Gpt2 model_;
  int64_t block_size_;
};

}  // namespace

std::unique_ptr<TrainJob> make_causal_lm_job(const TrainConfig& config, int workers) {
  return std::make_unique<CausalLmJob>(config, load_causal_lm_setup(config, workers));
}

}  // namespace strake::tasks
