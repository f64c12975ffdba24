#include "strake/rows/text_rows.h"

#include <string_view>
#include <utility>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/label_lists.h"
#include "strake/data/text_pipeline.h"

namespace strake::rows {

void tell_cut_rows(int64_t rows, const TextOptions& options) {
  if (rows == 0) return;
  if (options.form == RowForm::kPieces) {
    log::info("{} text{} more than --block_size {} tokens: each of {} pieces sees {} tokens of the one before", rows,
              rows == 1 ? " has" : "s have", options.max_seq_length, rows == 1 ? "its" : "their", options.doc_stride);
    return;
  }
  log::warning("{} row{} had more than --max_seq_length {} tokens: the rest of {} was left out", rows,
               rows == 1 ? "" : "s", options.max_seq_length, rows == 1 ? "it" : "them");
}

namespace {

uint32_t extended(uint32_t checksum, std::string_view text, uint64_t length) {
  checksum = crc32c(&length, sizeof(length), checksum);
  return crc32c(text.data(), text.size(), checksum);
}

std::vector<uint32_t> word_checksums(const data::Table& table, const std::string& column) {
  std::vector<uint32_t> checksums;
  for (const std::vector<std::string>& words : data::label_lists(table, column)) {
    uint32_t& checksum = checksums.emplace_back();
    for (const std::string& word : words) checksum = extended(checksum, word, word.size());
  }
  return checksums;
}

}  // namespace

std::vector<uint32_t> text_checksums(const data::Table& table, const TextOptions& options) {
  if (options.form == RowForm::kWords) return word_checksums(table, options.text_column);
  std::vector<uint32_t> checksums(static_cast<size_t>(table.num_rows()));
  for (const std::string& name : {options.text_column, options.text_pair_column}) {
    if (name.empty()) continue;
    const data::TextColumn texts = table.text(name);
    for (int64_t row = 0; row < texts.size(); ++row) {
      uint32_t& checksum = checksums[static_cast<size_t>(row)];
      checksum = extended(checksum, texts[row], texts.is_null(row) ? UINT64_MAX : texts[row].size());
    }
  }
  return checksums;
}

void for_each_encoded(data::TableReader& input, const RowEncoding& encoding, int workers,
                      const std::function<void(EncodedRows)>& sink) {
  for_each_encoded([&] { return input.next(); }, encoding, workers, sink);
}

void for_each_encoded(const std::function<std::optional<data::Table>()>& next, const RowEncoding& encoding, int workers,
                      const std::function<void(EncodedRows)>& sink) {
  EncoderPool pool(encoding.tokenizer, encoding.places);
  const auto work = [&](const data::Table& table) { return pool.encode(table, encoding.options, encoding.labels); };
  data::ordered_parallel_map(next, work, sink, {.workers = workers});
}

data::TableSource make_source(const std::vector<std::string>& files, const std::string& encoding) {
  data::TableSource source;
  source.paths.assign(files.begin(), files.end());
  source.encoding = data::parse_encoding(encoding);
  return source;
}

void require_text_columns(const data::Table& table, const TextOptions& options) {
  if (options.form == RowForm::kWords) return;
  for (const std::string& name : {options.text_column, options.text_pair_column}) {
    if (!name.empty()) table.text(name);
  }
}

data::TableReader open_input(data::TableSource source, const TextOptions& options) {
  data::TableReader input(std::move(source));
  require_text_columns(input.no_rows(), options);
  return input;
}

data::TableReader open_input(const std::vector<std::string>& files, const TextOptions& options) {
  data::TableSource source = make_source(files, options.encoding);
  source.columns = options.columns();
  return open_input(std::move(source), options);
}

data::TokenDataset encode_all(data::TableReader& input, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                              const TextOptions& options, const LabelMap* labels, int workers) {
  data::TokenDatasetBuilder builder(input.files().front().string());
  int64_t num_cut = 0;
  for_each_encoded(input, {std::move(tokenizer), options, labels}, workers, [&](const EncodedRows& rows) {
    num_cut += std::ssize(rows.cut_rows);
    for (int64_t i = 0; i < rows.num_rows(); ++i) builder.append(rows.token_row(i));
  });
  tell_cut_rows(num_cut, options);
  return builder.build();
}

}  // namespace strake::rows
