#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/tasks/label_map.h"
#include "strake/tokenizers/fast_encoder.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

// Flags of every verb that reads text.
struct TextOptions {
  std::string text_column = "text";
  std::string text_pair_column;  // empty: single texts
  std::string label_column;      // empty: unlabelled
  std::string encoding = "utf-8";
  int64_t max_seq_length = 128;
};

// Where in its text a token is.
struct TokenPlace {
  int32_t begin = 0;  // in code points
  int32_t end = 0;
  bool is_added = false;  // by the tokenizer, such as [CLS]: nowhere
};
enum class Places { kNone, kOfTokens };

// Some rows with their tokens.
struct EncodedRows {
  data::Table table;
  std::vector<int32_t> ids;           // of all rows, one after the other
  std::vector<int64_t> offsets;       // rows + 1
  std::vector<int32_t> second_begin;  // per row: first token of type 1, or the row's length
  std::vector<Label> labels;          // per row; empty if unlabelled
  std::vector<TokenPlace> places;     // per token, if they are asked for
  std::vector<int64_t> cut_rows;      // those with more than max_seq_length tokens, if places are asked for

  int64_t num_rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
  // Row i for a token dataset or file.
  data::TokenRow token_row(int64_t i) const;
};

// Encoders have scratch memory and a word cache, so each thread at work borrows one and gives it back warm.
class EncoderPool {
 public:
  explicit EncoderPool(std::shared_ptr<const tokenizers::Tokenizer> tokenizer, Places places = Places::kNone);
  ~EncoderPool();
  EncoderPool(const EncoderPool&) = delete;
  EncoderPool& operator=(const EncoderPool&) = delete;

  // Tokens of a table's rows from `first_row` on; the ones before have none. `labels` may be null. Thread-safe.
  EncodedRows encode(const data::Table& table, const TextOptions& options, const LabelMap* labels,
                     int64_t first_row = 0);

 private:
  std::unique_ptr<tokenizers::FastEncoder> take();
  void give_back(std::unique_ptr<tokenizers::FastEncoder> encoder);

  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  Places places_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<tokenizers::FastEncoder>> free_;
};

struct RowEncoding {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  const TextOptions& options;
  const LabelMap* labels = nullptr;  // null: rows get no labels
};

// Reads, tokenizes on `workers` threads and hands over rows in their order, in constant memory.
void for_each_encoded(const data::TableSource& source, const RowEncoding& encoding, int workers,
                      const std::function<void(EncodedRows)>& sink);

// The source that --train_file and its like stand for.
data::TableSource make_source(const std::vector<std::string>& files, const std::string& encoding);

// Everything in memory, for training and evaluation.
data::TokenDataset encode_all(const data::TableSource& source, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                              const TextOptions& options, const LabelMap* labels, int workers);

}  // namespace strake::tasks
