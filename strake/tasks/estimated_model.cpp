#include "strake/tasks/estimated_model.h"

#include <algorithm>
#include <filesystem>

#include "strake/core/error.h"
#include "strake/models/encoder/masked_language_model.h"
#include "strake/models/encoder/question_answerer.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/rows/sequence_length.h"
#include "strake/tasks/causal_lm_config.h"
#include "strake/tasks/masked_lm_config.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

EstimatedModel language_model(const TrainConfig& config) {
  const models::Gpt2Config model = read_causal_lm_config(config);
  return {.model = std::make_unique<models::Gpt2>(model),
          .name = "gpt2",
          .hidden_size = model.hidden_size,
          .max_length = model.max_positions,
          .default_length = rows::default_block_size(model.max_positions)};
}

EstimatedModel masked_language_model(const TrainConfig& config) {
  const models::EncoderConfig model = read_masked_lm_config(config, nullptr);
  const models::TokenMasking masking{.probability = config.mlm_probability, .num_tokens = model.vocab_size};
  return {.model = std::make_unique<models::MaskedLanguageModel>(model, masking),
          .name = model.model_type,
          .hidden_size = model.hidden_size,
          .max_length = model.max_sequence_length(),
          .default_length = rows::default_block_size(model.max_sequence_length())};
}

EstimatedModel encoder_model(const TrainConfig& config) {
  fs::path folder = config.model_name_or_path.empty() ? config.config_name : config.model_name_or_path;
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown)) {
    require(folder.filename() == "config.json", ErrorKind::kUsage, "{} is neither a folder nor a config.json",
            folder.string());
    folder = folder.has_parent_path() ? folder.parent_path() : ".";
  }
  models::EncoderConfig model = models::read_encoder_config(folder);
  if (model.labels.empty()) model.set_labels({"LABEL_0", "LABEL_1"}, std::nullopt);
  EstimatedModel estimated{.model = nullptr,
                           .name = model.model_type,
                           .hidden_size = model.hidden_size,
                           .max_length = model.max_sequence_length(),
                           .default_length = std::min<int64_t>(model.max_sequence_length(), 128)};
  if (config.train_task() == TrainTask::kTokenClassification) {
    estimated.model = std::make_unique<models::TokenClassifier>(model);
  } else if (config.train_task() == TrainTask::kQuestionAnswering) {
    estimated.model = std::make_unique<models::QuestionAnswerer>(model);
    estimated.default_length = std::min(model.max_sequence_length(), rows::kUsualWindow);
  } else {
    estimated.model = std::make_unique<models::SequenceClassifier>(model);
  }
  return estimated;
}

}  // namespace

EstimatedModel estimated_model(const TrainConfig& config) {
  switch (config.train_task()) {
    case TrainTask::kCausalLm:
      return language_model(config);
    case TrainTask::kMaskedLm:
      return masked_language_model(config);
    case TrainTask::kSequenceClassification:
    case TrainTask::kTokenClassification:
    case TrainTask::kQuestionAnswering:
      break;
  }
  return encoder_model(config);
}

}  // namespace strake::tasks
