#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

inline constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

// Rows [begin, end) of files.
struct RowRange {
  int64_t begin = 0;
  int64_t end = kAllRows;
};

// The training sequences of a causal language model: every document (row of the input) on its own, cut into pieces of
// `block_size` tokens if it is longer. Nothing is padded or joined, so no document sees another one. Pieces of fewer
// than two tokens predict nothing: they are left out and counted.
class DocumentPieces {
 public:
  // `source` is named in messages. What comes behind `most` pieces is left out.
  DocumentPieces(std::string source, int64_t block_size, int64_t most = kAllRows)
      : source_(std::move(source)), block_size_(block_size), most_(most), builder_(source_) {}

  void append(std::span<const int32_t> document);
  // Tokenizes a column on `workers` threads.
  void append_texts(data::TableReader& texts, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                    const std::string& text_column, int workers);
  // Some documents of files made by strake prepare. Error (kData) if it had another tokenizer.
  void append_token_files(const std::vector<std::string>& paths, const tokenizers::Tokenizer& tokenizer,
                          const RowRange& rows = {});

  int64_t num_documents() const { return num_documents_; }
  int64_t num_cut_documents() const { return num_cut_documents_; }      // into several pieces
  int64_t num_short_documents() const { return num_short_documents_; }  // fewer than two tokens
  int64_t num_short_ends() const { return num_short_ends_; }            // of one token, of documents that were cut
  // Says what was left out, and what may have been before.
  void log_counts() const;
  data::TokenDataset build() { return builder_.build(); }

 private:
  bool is_full() const { return num_pieces_ >= most_; }

  std::string source_;
  int64_t block_size_;
  int64_t most_;
  data::TokenDatasetBuilder builder_;
  int64_t num_documents_ = 0;
  int64_t num_cut_documents_ = 0;
  int64_t num_short_documents_ = 0;
  int64_t num_short_ends_ = 0;
  int64_t num_full_ = 0;  // as long as strake prepare let them be
  int64_t max_length_ = 0;
  int64_t num_pieces_ = 0;
};

}  // namespace strake::tasks
