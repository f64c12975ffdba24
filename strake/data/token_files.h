#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "strake/data/token_dataset.h"
#include "strake/data/token_file.h"

namespace strake::data {

// Token files that were made by the same tokenizer with the same label names and kind, one after the other. Errors
// (kData) name the file.
class TokenFiles {
 public:
  // Reads what their footers say. `paths`: files, or folders of .parquet files as in TableSource.
  explicit TokenFiles(const std::vector<std::filesystem::path>& paths);

  const TokenFileInfo& info() const { return info_; }  // of the first, but for pairs
  int64_t size() const;
  // Hands over all sequences in their order, each with max_length of its file, until `use` returns false.
  void for_each(const std::function<bool(const TokenRow&, int64_t max_length)>& use) const;
  TokenDataset load() const;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<TokenFileReader> readers_;
  TokenFileInfo info_;
};

// The files of `paths`, as in TableSource, if the first of them is a token file, and none otherwise.
std::vector<std::filesystem::path> token_files(const std::vector<std::string>& paths);

}  // namespace strake::data
