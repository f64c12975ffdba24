#include "strake/data/token_files.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "strake/core/error.h"
#include "strake/data/table_reader.h"

namespace strake::data {
namespace fs = std::filesystem;

TokenFiles::TokenFiles(const std::vector<fs::path>& paths) : files_(expand_paths(paths, TableFormat::kParquet)) {
  for (const fs::path& file : files_) {
    const TokenFileInfo& found = readers_.emplace_back(file).info();
    if (readers_.size() == 1) info_ = found;
    require(found.tokenizer == info_.tokenizer && found.label_names == info_.label_names &&
                found.label_kind == info_.label_kind,
            ErrorKind::kData, "{} and {} were made with different tokenizers or labels; prepare them together",
            files_.front().string(), file.string());
    info_.has_pairs = info_.has_pairs || found.has_pairs;
  }
}

int64_t TokenFiles::size() const {
  return std::transform_reduce(readers_.begin(), readers_.end(), int64_t{0}, std::plus<>(),
                               [](const TokenFileReader& reader) { return reader.size(); });
}

void TokenFiles::for_each(const std::function<bool(const TokenRow&, int64_t)>& use) const {
  bool wants_more = true;
  for (const TokenFileReader& reader : readers_) {
    const int64_t max_length = reader.info().max_length;
    reader.for_each([&](const TokenRow& row) { return wants_more = use(row, max_length); });
    if (!wants_more) return;
  }
}

TokenDataset TokenFiles::load() const {
  int64_t tokens = 0;
  int64_t bytes = 0;
  for (const TokenFileReader& reader : readers_) tokens += reader.total_tokens();
  for (const fs::path& file : files_) bytes += static_cast<int64_t>(fs::file_size(file));
  TokenDatasetBuilder builder(files_.front().string());
  // No more than files of this size are likely to hold, whatever they say.
  constexpr int64_t kMostOfByte = 16;
  if (tokens > 0) builder.reserve(std::min(size(), tokens), std::min(tokens, kMostOfByte * bytes));
  for_each([&](const TokenRow& row, int64_t) {
    builder.append(row);
    return true;
  });
  return builder.build();
}

std::vector<fs::path> token_files(const std::vector<std::string>& paths) {
  if (paths.empty()) return {};
  std::vector<fs::path> files = expand_paths({paths.begin(), paths.end()}, {});
  if (known_format(files.front()) != TableFormat::kParquet || !is_token_file(files.front())) files.clear();
  return files;
}

}  // namespace strake::data
