#pragma once

#include "strake/data/table.h"
#include "strake/rows/document_pieces.h"
#include "strake/rows/encoded_rows.h"
#include "strake/rows/label_map.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

// Labels of words, one list per row, as classes of their tokens.
struct WordClasses {
  const LabelMap& labels;
  const std::string& column;
  // Of a word have its class, or behind the first token of a B-... that of I-..., if there is one; else only the first.
  bool all_tokens = false;
};

// Tokens of lists of words, each tokenized on its own, with a space before it where the tokenizer tells words by
// spaces, as Transformers' run_ner.py has them. Of more than max_seq_length tokens the last ones are left out, or those
// at the side that the tokenizer names. A token's place is the
// number of its word in the row, [word, word + 1), and says whether the word has had a token.
class WordEncoder {
 public:
  // `options`: text_column holds the lists. Keeps the tokenizer and the options by reference. Errors: kConfig if the
  // tokenizer does not put one special token before a text and one behind it; kUsage if max_seq_length leaves no room
  // between them.
  WordEncoder(const tokenizers::Tokenizer& tokenizer, const TextOptions& options);

  // The rows before `first_row` have no tokens. `classes` may be null. Thread-safe. Errors: kData, naming the row, for
  // what is no list of words, and for another number of labels than of words.
  EncodedRows encode(const data::Table& table, const WordClasses* classes = nullptr, int64_t first_row = 0) const;

 private:
  const tokenizers::Tokenizer& tokenizer_;
  const TextOptions& options_;
  PieceEnds ends_;
};

}  // namespace strake::rows
