#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strake/data/token_dataset.h"

// Token files: Parquet with one tokenized sequence per row, made by `strake prepare`, readable by any Parquet reader.
//   input_ids     list<int32>
//   second_begin  int32         only for pairs: index of the first token of type 1
//   label         int32 class, float, or list<int32>, classes in ascending order; absent if unlabelled
//   row           int64         row of the input
// Key/value metadata: strake.format_version, strake.tokenizer (fingerprint), strake.label_names (JSON array),
// strake.max_length, strake.source, and strake.lengths: the sequence lengths (see length_codec.h), so that
// batches can be planned from the footer alone.
namespace strake::data {

struct TokenFileInfo {
  std::string tokenizer = {};                 // fingerprint of the tokenizer that made the ids
  std::vector<std::string> label_names = {};  // by class; empty if there are no classes
  int64_t max_length = 0;                     // tokens after truncation
  std::string source = {};                    // what the file was made from
  bool has_pairs = false;
  TokenLabelKind label_kind = TokenLabelKind::kNone;
};

// Appends sequences; the file appears at finish(), as for TableWriter. One thread at a time.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& file, const TokenFileInfo& info);
  ~TokenFileWriter();
  TokenFileWriter(TokenFileWriter&&) noexcept;
  TokenFileWriter& operator=(TokenFileWriter&&) noexcept;

  // Error (kData) for rows that check_token_row refuses, longer than max_length, with a class that has no name, or
  // with second_begin when the file has no pairs.
  void append(const TokenRow& row);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the footer of a token file says; its sequences are not read. Errors: kData naming the file if it is not a token
// file, of a newer format version, or damaged.
class TokenFileReader {
 public:
  explicit TokenFileReader(const std::filesystem::path& file);

  const TokenFileInfo& info() const { return info_; }
  int64_t size() const { return num_sequences_; }
  // Of every sequence; empty if the file does not record them.
  std::span<const int32_t> lengths() const { return lengths_; }
  int64_t total_tokens() const;

  // Reads the sequences, in pieces, and hands them over until `use` returns false. Checks them against the footer.
  void for_each(const std::function<bool(const TokenRow&)>& use) const;

 private:
  std::filesystem::path file_;
  TokenFileInfo info_;
  int64_t num_sequences_ = 0;
  std::vector<int32_t> lengths_;
};

// True if the Parquet file carries the mark of a token file; false for other Parquet files.
bool is_token_file(const std::filesystem::path& file);

}  // namespace strake::data
