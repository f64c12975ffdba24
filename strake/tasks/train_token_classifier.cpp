#include <algorithm>

#include "strake/core/error.h"
#include "strake/models/config_values.h"
#include "strake/models/encoder/token_classifier.h"
#include "strake/monitor/entity_metrics.h"
#include "strake/rows/collect_labels.h"
#include "strake/rows/known_tokens.h"
#include "strake/rows/labelled_words.h"
#include "strake/tasks/train_job.h"

namespace strake::tasks {
namespace {

struct TokenClassifierSetup {
  models::EncoderConfig model_config;
  JobInputs inputs;
  rows::TextOptions text;
};

// Those of the training data, unless the model was trained before and gave its own names.
rows::LabelMap choose_word_labels(const TrainConfig& config, const models::EncoderConfig& model) {
  rows::LabelMap trained = rows::labels_of_words(model);
  const bool keeps =
      models::architecture_of(model.document).ends_with("ForTokenClassification") && !config.ignore_mismatched_sizes;
  if (keeps && !trained.has_generic_names()) return trained;
  const rows::LabelMap labels =
      rows::labels_in_lists(rows::make_source(config.train_file, config.text.encoding), config.text.label_column);
  require(!labels.names().empty(), ErrorKind::kData, "{}: column '{}' has no labels: all lists are empty",
          config.train_file.front(), config.text.label_column);
  if (keeps && labels.names().size() != trained.names().size()) return trained;
  const bool has_other_order =
      labels.names() != model.labels && std::ranges::is_permutation(labels.names(), model.labels);
  return has_other_order ? rows::LabelMap::classes(model.labels, labels.problem()) : labels;
}

data::TokenDataset read_words(const std::vector<std::string>& files, int64_t most, const rows::LabelledWords& words,
                              const TokenClassifierSetup& setup, int workers) {
  data::TableReader input = rows::open_words(files, setup.text);
  if (most > 0) input.limit_to(0, most);
  data::TokenDataset dataset = rows::encode_words(input, words, workers);
  require(dataset.size() > 0, ErrorKind::kData, "{} has no row with a labelled token", files.front());
  rows::require_known_tokens(dataset, setup.model_config.vocab_size, files.front());
  return dataset;
}

TokenClassifierSetup load_token_classifier_setup(const TrainConfig& config, int workers) {
  TokenClassifierSetup setup{.model_config = models::read_encoder_config(config.model_name_or_path),
                             .inputs = {.tokenizer = load_tokenizer(config)},
                             .text = config.text};
  refuse_token_files(config, "words and labels");
  setup.text.max_seq_length =
      sequence_length(config, config.text.max_seq_length, setup.model_config, *setup.inputs.tokenizer);
  std::vector<std::string> metrics;
  for (const auto& [name, value] : monitor::EntityMetrics().named_values()) metrics.push_back(name);
  require_known_metric(config.training, "token classification", metrics);
  rows::open_words(config.train_file, setup.text);
  const rows::LabelMap labels = choose_word_labels(config, setup.model_config);
  setup.model_config.set_labels(labels.names(), std::nullopt);
  const rows::LabelledWords words{.tokenizer = setup.inputs.tokenizer,
                                  .options = setup.text,
                                  .labels = labels,
                                  .label_all_tokens = config.label_all_tokens};
  setup.inputs.train = read_words(config.train_file, config.max_train_samples, words, setup, workers);
  if (!config.validation_file.empty()) {
    setup.inputs.evaluation = read_words(config.validation_file, config.max_eval_samples, words, setup, workers);
  }
  return setup;
}

class TokenClassifierJob final : public TrainJob {
 public:
  TokenClassifierJob(const TrainConfig& config, TokenClassifierSetup setup)
      : TrainJob(config, std::move(setup.inputs)),
        model_(std::move(setup.model_config), config.training.label_smoothing_factor) {
    training::freeze_parameters(model_, config.training.frozen);
  }

  const models::Model& model() const override { return model_; }
  std::string describe() const override {
    return fmt::format("{} with {} parameters and {} labels of words", model_.config().model_type,
                       model_.num_parameters(), model_.config().num_labels());
  }
  training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const override {
    return training::evaluate_token_classifier(model_, parameters, comm, evaluation_data(), eval_batch_size());
  }
  int64_t hidden_size() const override { return model_.config().hidden_size; }
  // What its tokens are predicted to be.
  int64_t outputs_of_row() const override {
    return has_evaluation() ? evaluation_data().total_tokens() / evaluation_data().size() + 1 : 0;
  }
  // As run_ner.py saves it: words have been tokenized each with a space before it.
  Json tokenizer_settings() const override {
    return tokenizer()->byte_pair() == nullptr ? Json::object() : Json{{"add_prefix_space", true}};
  }
  std::string config_json() const override { return models::token_classifier_json(model_.config(), "float32"); }

 private:
  models::TokenClassifier model_;
};

}  // namespace

std::unique_ptr<TrainJob> make_token_classifier_job(const TrainConfig& config, int workers) {
  return std::make_unique<TokenClassifierJob>(config, load_token_classifier_setup(config, workers));
}

}  // namespace strake::tasks
