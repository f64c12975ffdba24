#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

inline constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

// Rows [begin, end) of files.
struct RowRange {
  int64_t begin = 0;
  int64_t end = kAllRows;
};

// Special tokens before and behind every piece.
struct PieceEnds {
  int32_t first;
  int32_t last;
};
// What the tokenizer puts around a text. Error (kConfig) if that is not one token before and one behind it.
PieceEnds ends_of(const tokenizers::Tokenizer& tokenizer);

struct PieceShape {
  int64_t block_size;                            // tokens at most, with ends
  std::optional<PieceEnds> ends = std::nullopt;  // that the tokenizer adds to a text

  // Of a text's own tokens: fewer predict nothing.
  int64_t least() const { return ends ? 1 : 2; }
  const char* least_text() const { return ends ? "any token" : "two tokens or more"; }
  int64_t most() const { return block_size - (ends ? 2 : 0); }
};

// The training sequences of a language model: every document (row of the input) on its own, cut into pieces if it is
// longer than one. Nothing is padded or joined, so no document sees another one. Pieces that predict nothing are left
// out and counted.
class DocumentPieces {
 public:
  // `source` is named in messages. What comes behind `most` pieces is left out.
  DocumentPieces(std::string source, const PieceShape& shape, int64_t most = kAllRows)
      : source_(std::move(source)), shape_(shape), most_(most), builder_(source_) {}

  // With the shape's ends, if it has any.
  void append(std::span<const int32_t> document);
  // Tokenizes a column on `workers` threads.
  void append_texts(data::TableReader& texts, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                    const std::string& text_column, int workers);
  // Some documents of files made by strake prepare. Error (kData) if it had another tokenizer.
  void append_token_files(const std::vector<std::string>& paths, const tokenizers::Tokenizer& tokenizer,
                          const RowRange& rows = {});

  int64_t num_documents() const { return num_documents_; }
  int64_t num_cut_documents() const { return num_cut_documents_; }  // into several pieces
  int64_t num_short_documents() const { return num_short_documents_; }
  int64_t num_short_ends() const { return num_short_ends_; }  // of documents that were cut
  // Says what was left out, and what may have been before.
  void log_counts() const;
  data::TokenDataset build() { return builder_.build(); }

 private:
  bool is_full() const { return num_pieces_ >= most_; }
  std::span<const int32_t> with_ends(std::span<const int32_t> piece);

  std::string source_;
  PieceShape shape_;
  int64_t most_;
  data::TokenDatasetBuilder builder_;
  std::vector<int32_t> with_ends_;
  int64_t num_documents_ = 0;
  int64_t num_cut_documents_ = 0;
  int64_t num_short_documents_ = 0;
  int64_t num_short_ends_ = 0;
  int64_t num_full_ = 0;            // as long as strake prepare let them be
  std::set<int64_t> full_lengths_;  // those lengths
  int64_t num_pieces_ = 0;
};

}  // namespace strake::rows
