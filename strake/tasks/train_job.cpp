#include "strake/tasks/train_job.h"

#include "strake/core/error.h"
#include "strake/data/token_file.h"

namespace strake::tasks {

namespace fs = std::filesystem;

std::shared_ptr<const tokenizers::Tokenizer> load_tokenizer(const TrainConfig& config) {
  return tokenizers::Tokenizer::load(config.tokenizer_name.empty() ? config.model_name_or_path : config.tokenizer_name);
}

bool are_token_files(const std::vector<std::string>& paths) {
  return !paths.empty() && fs::path(paths.front()).extension() == ".parquet" && data::is_token_file(paths.front());
}

std::optional<data::TableReader> open_split(const std::vector<std::string>& paths, const TextOptions& text) {
  if (paths.empty() || are_token_files(paths)) return std::nullopt;
  return open_input(paths, text);
}

void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path) {
  require(dataset.max_token_id() < vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model", path,
          dataset.max_token_id(), vocab_size);
}

}  // namespace strake::tasks
