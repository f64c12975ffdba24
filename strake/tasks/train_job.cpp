#include "strake/tasks/train_job.h"

#include <algorithm>
#include <cmath>

#include "strake/core/error.h"
#include "strake/data/token_file.h"
#include "strake/rows/sequence_length.h"

namespace strake::tasks {

namespace fs = std::filesystem;

std::shared_ptr<const tokenizers::Tokenizer> load_tokenizer(const TrainConfig& config) {
  return tokenizers::Tokenizer::load(config.tokenizer_name.empty() ? config.model_name_or_path : config.tokenizer_name);
}

int64_t sequence_length(const TrainConfig& config, int64_t by_default, const models::EncoderConfig& model,
                        const tokenizers::Tokenizer& tokenizer) {
  const bool is_given = config.given.contains("max_seq_length");
  return rows::choose_sequence_length(is_given ? std::optional(config.text.max_seq_length) : std::nullopt, by_default,
                                      model, tokenizer);
}

bool are_token_files(const std::vector<std::string>& paths) { return !data::token_files(paths).empty(); }

void refuse_token_files(const TrainConfig& config, const std::string& what) {
  for (const auto* paths : {&config.train_file, &config.validation_file}) {
    require(!are_token_files(*paths), ErrorKind::kUsage, "{} was made by strake prepare: --task {} reads {}",
            paths->empty() ? "" : paths->front(), config.task, what);
  }
}

namespace {

Split open_split(const std::vector<std::string>& paths, const rows::TextOptions& text, int64_t samples) {
  Split split{.paths = paths, .most_sequences = samples == 0 ? rows::kAllRows : samples};
  if (!paths.empty() && !are_token_files(paths)) split.tables.emplace(rows::open_input(paths, text));
  return split;
}

int64_t count_rows(const Split& split) {
  if (split.tables) return split.tables->count_rows();
  int64_t rows = 0;
  for (const fs::path& file : data::token_files(split.paths)) rows += data::TokenFileReader(file).size();
  return rows;
}

void limit(Split& split, const rows::RowRange& rows) {
  split.rows = rows;
  if (split.tables) split.tables->limit_to(rows.begin, rows.end);
}

}  // namespace

Splits open_splits(const TrainConfig& config, const rows::TextOptions& text) {
  Splits splits{.train = open_split(config.train_file, text, config.max_train_samples),
                .evaluation = open_split(config.validation_file, text, config.max_eval_samples)};
  const int64_t percent = config.validation_split_percentage;
  if (percent == 0 || !config.validation_file.empty()) return splits;
  splits.evaluation = open_split(config.train_file, text, config.max_eval_samples);
  // As split="train[:5%]" of Hugging Face's datasets: a half goes to the even number.
  const int64_t rows = count_rows(splits.train);
  const auto border = static_cast<int64_t>(std::nearbyint(static_cast<double>(rows * percent) / 100));
  require(border > 0 && border < rows, ErrorKind::kData,
          "--validation_split_percentage {} of the {} rows of {} are {}: {} is left", percent, rows,
          config.train_file.front(), border, border == 0 ? "no evaluation" : "nothing to train on");
  limit(splits.evaluation, {0, border});
  limit(splits.train, {border, rows});
  return splits;
}

}  // namespace strake::tasks
