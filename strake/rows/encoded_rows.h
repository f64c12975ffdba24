#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/table.h"
#include "strake/data/token_dataset.h"
#include "strake/rows/label_map.h"
#include "strake/tokenizers/fast_encoder.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

// What a row becomes.
enum class RowForm {
  kSequence,  // one sequence: the text, or a pair, cut off at max_seq_length
  kApart,     // a pair: two sequences; without places
  kWindows,  // a pair: windows of max_seq_length tokens, each with all of the first text, and with a part of the second
             // one that shares doc_stride tokens with the window before; with places
  kPieces,   // a text: pieces of max_seq_length tokens, which begin with the last doc_stride ones of the piece before;
             // of a text without tokens none; without places
  kWords     // text_column holds lists of words: one sequence (word_rows.h), with places without being asked
};

// Which text is read, and what becomes of it.
struct TextOptions {
  std::string text_column = "text";
  std::string text_pair_column;  // empty: single texts
  std::string label_column;      // empty: unlabelled
  std::string encoding = "utf-8";
  int64_t max_seq_length = 128;
  RowForm form = RowForm::kSequence;
  int64_t doc_stride = 0;         // of windows and pieces
  bool strips_questions = false;  // of windows: of white space before the first text, as run_qa.py does
  std::optional<int32_t> start_token = std::nullopt;  // of the first piece of a text, before the text's own ones
  bool strips_texts = false;  // of white space at both ends, as sentence-transformers does; only without places

  // Error (kUsage) for no tokens, and for labels that are a text.
  void validate() const;
  // Those to be read.
  std::vector<std::string> columns() const;
  // A row may become several sequences, which share tokens.
  bool is_split() const { return form == RowForm::kWindows || form == RowForm::kPieces; }
};

// Where a token is in its text, or in the second text of a pair.
struct TokenPlace {
  int32_t begin = 0;  // in code points; of lists in words
  int32_t end = 0;
  bool is_outside = false;      // added by the tokenizer, such as [CLS], or of the first text of a pair: nowhere
  bool continues_word = false;  // that of the token before; only with kWithContinuations and of lists of words
};
// kOfWords: a token's place is that of its word, as far as it is in the window.
enum class Places { kNone, kOfTokens, kOfWords, kWithContinuations };

// Some rows with their tokens. A row is one sequence, or the windows or pieces that it was cut into.
struct EncodedRows {
  data::Table table;
  std::vector<int32_t> ids;           // of all rows, one after the other
  std::vector<int64_t> offsets{0};    // sequences + 1
  std::vector<int32_t> second_begin;  // per sequence: first token of type 1, or the sequence's length
  std::vector<Label> labels;          // per row; empty if unlabelled
  std::vector<TokenPlace> places;     // per token, if they are asked for
  std::vector<int32_t> classes;       // per token, data::kNoClass or that of its word; empty unless words have labels
  std::vector<int64_t> cut_rows;      // those with more than max_seq_length tokens, unless they become windows
  std::vector<int64_t> first_sequences;  // rows + 1; empty if every row is one sequence

  int64_t num_rows() const { return std::ssize(first_sequences.empty() ? offsets : first_sequences) - 1; }
  int64_t first_sequence(int64_t row) const { return first_sequences.empty() ? row : first_sequences[row]; }
  int64_t first_token(int64_t row) const { return offsets[first_sequence(row)]; }
  int64_t row_of_sequence(int64_t sequence) const;
  // Sequence i for a token dataset or file, with label and number of row i: of rows that are one sequence each.
  data::TokenRow token_row(int64_t i) const;
};

// Encoders have scratch memory and a word cache, so each thread at work borrows one and gives it back warm.
class EncoderPool {
 public:
  explicit EncoderPool(std::shared_ptr<const tokenizers::Tokenizer> tokenizer, Places places = Places::kNone);

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

}  // namespace strake::rows
