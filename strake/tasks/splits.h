#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/rows/document_pieces.h"
#include "strake/rows/text_rows.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// True if the first file is made by strake prepare; the others must be as well then.
bool are_token_files(const std::vector<std::string>& paths);

// What a run trains on or is evaluated on: the first sequences of some rows.
struct Split {
  std::vector<std::string> paths;                          // none: there is no such split
  std::optional<data::TableReader> tables = std::nullopt;  // of the rows; none of files that were prepared
  rows::RowRange rows = {};
  int64_t most_sequences = rows::kAllRows;
};
struct Splits {
  Split train;
  Split evaluation;
};
// With the columns of `text`. Error (kData) if --validation_split_percentage leaves one of them without a row.
Splits open_splits(const TrainConfig& config, const rows::TextOptions& text);

}  // namespace strake::tasks
