#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "strake/data/text_encoding.h"

namespace strake::data {

struct BatchOrigin {
  std::optional<TextEncoding> encoding = TextEncoding::kUtf8;  // none: UTF-8, which no flag can change
  std::string file;
  int64_t first_row = 0;
};

// Offsets, indices and text of a batch come from outside: nothing may touch them before this. Returns the batch with
// its strings in UTF-8. Error (kData) naming file, row and column.
std::shared_ptr<arrow::RecordBatch> checked_batch(const arrow::RecordBatch& batch, const BatchOrigin& origin);

}  // namespace strake::data
