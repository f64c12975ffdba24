#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/rows/encoded_rows.h"
#include "strake/rows/label_map.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

// CRC-32C of the text, both texts or all words of each row, with their lengths.
std::vector<uint32_t> text_checksums(const data::Table& table, const TextOptions& options);

// Says of how many rows only a part was looked at, or which were cut into pieces; nothing of none.
void tell_cut_rows(int64_t rows, const TextOptions& options);

struct RowEncoding {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  const TextOptions& options;
  const LabelMap* labels = nullptr;  // null: rows get no labels
  Places places = Places::kNone;
};

// Reads, tokenizes on `workers` threads and hands over rows in their order, in constant memory. `next` gives tables
// until there are none, on a thread of its own.
void for_each_encoded(const std::function<std::optional<data::Table>()>& next, const RowEncoding& encoding, int workers,
                      const std::function<void(EncodedRows)>& sink);
void for_each_encoded(data::TableReader& input, const RowEncoding& encoding, int workers,
                      const std::function<void(EncodedRows)>& sink);

// The source that --train_file and its like stand for.
data::TableSource make_source(const std::vector<std::string>& files, const std::string& encoding);

// Error (kData) unless the text columns are there and hold text; of words they are known to hold lists.
void require_text_columns(const data::Table& table, const TextOptions& options);

// Before what takes long: compares the files (data::TableReader) and looks whether the text columns hold text.
data::TableReader open_input(data::TableSource source, const TextOptions& options);
// With the columns of `options` and no others.
data::TableReader open_input(const std::vector<std::string>& files, const TextOptions& options);

// Everything in memory, for training and evaluation.
data::TokenDataset encode_all(data::TableReader& input, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                              const TextOptions& options, const LabelMap* labels, int workers);

}  // namespace strake::rows
