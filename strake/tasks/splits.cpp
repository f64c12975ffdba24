#include "strake/tasks/splits.h"

#include <cmath>

#include "strake/core/error.h"
#include "strake/data/token_files.h"

namespace strake::tasks {
namespace fs = std::filesystem;
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

bool are_token_files(const std::vector<std::string>& paths) { return !data::token_files(paths).empty(); }

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
