#include "strake/tasks/train_job.h"

#include "strake/core/error.h"
#include "strake/rows/sequence_length.h"
#include "strake/tasks/splits.h"

namespace strake::tasks {

std::shared_ptr<const tokenizers::Tokenizer> load_tokenizer(const TrainConfig& config) {
  return tokenizers::Tokenizer::load(config.tokenizer_name.empty() ? config.model_name_or_path : config.tokenizer_name);
}

int64_t sequence_length(const TrainConfig& config, int64_t by_default, const models::EncoderConfig& model,
                        const tokenizers::Tokenizer& tokenizer) {
  const bool is_given = config.given.contains("max_seq_length");
  return rows::choose_sequence_length(is_given ? std::optional(config.text.max_seq_length) : std::nullopt, by_default,
                                      model, tokenizer);
}

void refuse_token_files(const TrainConfig& config, const std::string& what) {
  for (const auto* paths : {&config.train_file, &config.validation_file}) {
    require(!are_token_files(*paths), ErrorKind::kUsage, "{} was made by strake prepare: --task {} reads {}",
            paths->empty() ? "" : paths->front(), config.task, what);
  }
}

}  // namespace strake::tasks
