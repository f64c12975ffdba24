#include <algorithm>

#include "strake/core/error.h"
#include "strake/models/encoder/masked_language_model.h"
#include "strake/rows/sequence_length.h"
#include "strake/tasks/documents.h"
#include "strake/tasks/masked_lm_config.h"
#include "strake/tasks/new_model_config.h"
#include "strake/tasks/train_job.h"

namespace strake::tasks {
namespace {

struct MaskedLmSetup {
  models::EncoderConfig model_config;
  models::TokenMasking masking;
  JobInputs inputs;
  int64_t max_length = 0;
};

MaskedLmSetup load_masked_lm_setup(const TrainConfig& config, int workers) {
  const auto tokenizer = load_tokenizer(config);
  MaskedLmSetup setup{.model_config = read_masked_lm_config(config, tokenizer.get()),
                      .inputs = {.tokenizer = tokenizer}};
  const int64_t vocab_size = setup.model_config.vocab_size;
  setup.masking = masking_of(config.mlm_probability, *tokenizer, vocab_size);
  setup.max_length = sequence_length(config, rows::default_block_size(setup.model_config.max_sequence_length()),
                                     setup.model_config, *tokenizer);
  require_known_metric(config.training, "language models", {"perplexity"});
  require_flags_of_text(config);
  require_vocabulary_of(*tokenizer, vocab_size, config);
  const rows::TextOptions text{.text_column = config.text.text_column, .encoding = config.text.encoding};
  Splits splits = open_splits(config, text);
  const DocumentReading how{.tokenizer = tokenizer,
                            .text_column = text.text_column,
                            .pieces = {.block_size = setup.max_length, .ends = rows::ends_of(*tokenizer)},
                            .vocab_size = vocab_size,
                            .workers = workers};
  setup.inputs.train = read_documents(splits.train, how).pieces;
  if (!splits.evaluation.paths.empty()) setup.inputs.evaluation = read_documents(splits.evaluation, how).pieces;
  return setup;
}

class MaskedLmJob final : public TrainJob {
 public:
  MaskedLmJob(const TrainConfig& config, MaskedLmSetup setup)
      : TrainJob(config, std::move(setup.inputs)),
        model_(std::move(setup.model_config), setup.masking, config.training.label_smoothing_factor),
        probability_(config.mlm_probability),
        max_length_(setup.max_length) {
    training::freeze_parameters(model_, config.training.frozen);
  }

  const models::Model& model() const override { return model_; }
  std::string describe() const override {
    return fmt::format("{} with {} parameters, {}; pieces of {} tokens at most, of which {} % are predicted",
                       model_.config().model_type, model_.num_parameters(),
                       weights().empty() ? "from scratch" : "from " + weights().string(), max_length_,
                       100 * probability_);
  }
  training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const override {
    return training::evaluate_language_model(
        {model_, parameters, comm, evaluation_data(), {.sequences = eval_batch_size()}});
  }
  int64_t hidden_size() const override { return model_.config().hidden_size; }
  Json fingerprint() const override { return {{"max_seq_length", max_length_}, {"mlm_probability", probability_}}; }
  std::string config_json() const override { return models::masked_language_model_json(model_.config(), "float32"); }

 private:
  models::MaskedLanguageModel model_;
  double probability_;
  int64_t max_length_;
};

}  // namespace

std::unique_ptr<TrainJob> make_masked_lm_job(const TrainConfig& config, int workers) {
  return std::make_unique<MaskedLmJob>(config, load_masked_lm_setup(config, workers));
}

}  // namespace strake::tasks
