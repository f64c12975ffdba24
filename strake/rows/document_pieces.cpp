#include "strake/rows/document_pieces.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/token_files.h"
#include "strake/rows/text_rows.h"

namespace strake::rows {

PieceEnds ends_of(const tokenizers::Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode("").ids;
  require(ids.size() == 2, ErrorKind::kConfig,
          "the tokenizer adds {} special tokens to a text; expected one before and one behind it", ids.size());
  return {ids.front(), ids.back()};
}

void DocumentPieces::append(std::span<const int32_t> document) {
  if (is_full()) return;
  num_documents_ += 1;
  if (const auto& ends = shape_.ends) {
    require(document.size() >= 2 && document.front() == ends->first && document.back() == ends->last, ErrorKind::kData,
            "{}: document {} is not between the tokens {} and {} that the tokenizer puts around a text", source_,
            num_documents_, ends->first, ends->last);
    document = document.subspan(1, document.size() - 2);
  }
  if (std::ssize(document) < shape_.least()) {
    num_short_documents_ += 1;
    return;
  }
  if (std::ssize(document) > shape_.most()) num_cut_documents_ += 1;
  while (!document.empty() && !is_full()) {
    const int64_t length = std::min<int64_t>(std::ssize(document), shape_.most());
    if (length < shape_.least()) {
      num_short_ends_ += 1;
      return;
    }
    builder_.append({.ids = with_ends(document.first(static_cast<size_t>(length))), .row = num_documents_ - 1});
    num_pieces_ += 1;
    document = document.subspan(static_cast<size_t>(length));
  }
}

std::span<const int32_t> DocumentPieces::with_ends(std::span<const int32_t> piece) {
  if (!shape_.ends) return piece;
  with_ends_.assign(1, shape_.ends->first);
  with_ends_.insert(with_ends_.end(), piece.begin(), piece.end());
  with_ends_.push_back(shape_.ends->last);
  return with_ends_;
}

void DocumentPieces::append_texts(data::TableReader& texts, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                                  const std::string& text_column, int workers) {
  const TextOptions options{.text_column = text_column, .max_seq_length = std::numeric_limits<int32_t>::max()};
  std::atomic<bool> has_enough = false;  // what is on its way then is read for nothing
  const auto next = [&] { return has_enough ? std::nullopt : texts.next(); };
  for_each_encoded(next, {std::move(tokenizer), options}, workers, [&](const EncodedRows& rows) {
    for (int64_t i = 0; i < rows.num_rows(); ++i) append(rows.token_row(i).ids);
    has_enough = is_full();
  });
}

void DocumentPieces::append_token_files(const std::vector<std::string>& paths, const tokenizers::Tokenizer& tokenizer,
                                        const RowRange& rows) {
  const data::TokenFiles files({paths.begin(), paths.end()});
  require(files.info().tokenizer == tokenizer.fingerprint(), ErrorKind::kData,
          "{} was prepared with another tokenizer than the model's", source_);
  require(!files.info().has_pairs, ErrorKind::kData, "{} holds pairs of texts, not documents", source_);
  int64_t number = 0;
  files.for_each([&](const data::TokenRow& document, int64_t max_length) {
    if (number == rows.end || is_full()) return false;
    data::check_token_row(document, files.info().label_kind, source_);
    if (number++ < rows.begin) return true;
    if (std::ssize(document.ids) >= max_length) {
      num_full_ += 1;
      full_lengths_.insert(max_length);
    }
    append(document.ids);
    return true;
  });
}

void DocumentPieces::log_counts() const {
  if (num_full_ > 0) {
    log::warning(
        "{}: {} of {} documents have {} tokens, where strake prepare cuts them (--max_seq_length): what it cut off is "
        "missing",
        source_, num_full_, num_documents_, fmt::join(full_lengths_, " or "));
  }
  if (num_short_documents_ > 0) {
    log::info("{}: {} of {} documents have {}, so that there is nothing to predict: left out", source_,
              num_short_documents_, num_documents_, shape_.ends ? "no token" : "fewer than two tokens");
  }
  if (num_short_ends_ > 0) {
    log::info("{}: of {} cut documents the last token stands alone, so that there is nothing to predict: left out",
              source_, num_short_ends_);
  }
}

}  // namespace strake::rows
