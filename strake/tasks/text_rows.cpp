#include "strake/tasks/text_rows.h"

#include "strake/core/error.h"
#include "strake/data/text_pipeline.h"

namespace strake::tasks {
namespace {

struct Request {
  const TextOptions& options;
  const LabelMap* labels;
  int64_t first_row;
  Places places;
};

// Appends a single text's tokens with their places.
void encode_with_places(const tokenizers::Tokenizer& tokenizer, std::string_view text, int64_t max_length,
                        EncodedRows& rows) {
  const tokenizers::Encoding encoding =
      tokenizer.encode(text, std::nullopt, {.truncation = tokenizers::Truncation{.max_length = max_length}});
  rows.ids.insert(rows.ids.end(), encoding.ids.begin(), encoding.ids.end());
  for (size_t i = 0; i < encoding.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    rows.places.push_back({.begin = begin, .end = end, .is_added = encoding.special_tokens_mask[i] != 0});
  }
  rows.second_begin.push_back(static_cast<int32_t>(encoding.size()));
  if (!encoding.overflowing.empty()) rows.cut_rows.push_back(std::ssize(rows.second_begin) - 1);
}

EncodedRows encode_table(const data::Table& table, const Request& request, tokenizers::FastEncoder& encoder) {
  const auto& [options, labels, first_row, places] = request;
  const data::TextColumn texts = table.text(options.text_column);
  std::optional<data::TextColumn> pairs;
  if (!options.text_pair_column.empty()) pairs = table.text(options.text_pair_column);
  std::optional<data::LabelColumn> label_column;
  if (labels != nullptr) label_column = table.labels(options.label_column);

  EncodedRows rows{
      .table = table, .ids = {}, .offsets = {0}, .second_begin = {}, .labels = {}, .places = {}, .cut_rows = {}};
  rows.offsets.resize(static_cast<size_t>(first_row) + 1);
  rows.second_begin.resize(static_cast<size_t>(first_row));
  for (int64_t row = first_row; row < table.num_rows(); ++row) {
    require(!texts.is_null(row) && (!pairs || !pairs->is_null(row)), ErrorKind::kData,
            "{}: column '{}' is null where text is expected", table.where(row),
            texts.is_null(row) ? options.text_column : options.text_pair_column);
    const std::optional<std::string_view> pair = pairs ? std::optional((*pairs)[row]) : std::nullopt;
    try {
      if (places == Places::kOfTokens) {
        encode_with_places(encoder.tokenizer(), texts[row], options.max_seq_length, rows);
      } else {
        rows.second_begin.push_back(
            static_cast<int32_t>(encoder.encode(texts[row], pair, options.max_seq_length, rows.ids)));
      }
    } catch (Error& error) {
      error.add_context(table.where(row));
      throw;
    }
    rows.offsets.push_back(static_cast<int64_t>(rows.ids.size()));
    if (label_column) rows.labels.push_back(labels->map(*label_column, row, table));
  }
  return rows;
}

}  // namespace

EncoderPool::EncoderPool(std::shared_ptr<const tokenizers::Tokenizer> tokenizer, Places places)
    : tokenizer_(std::move(tokenizer)), places_(places) {}
EncoderPool::~EncoderPool() = default;

std::unique_ptr<tokenizers::FastEncoder> EncoderPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<tokenizers::FastEncoder>(tokenizer_);
  auto encoder = std::move(free_.back());
  free_.pop_back();
  return encoder;
}

void EncoderPool::give_back(std::unique_ptr<tokenizers::FastEncoder> encoder) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(encoder));
}

EncodedRows EncoderPool::encode(const data::Table& table, const TextOptions& options, const LabelMap* labels,
                                int64_t first_row) {
  auto encoder = take();
  EncodedRows rows =
      encode_table(table, {.options = options, .labels = labels, .first_row = first_row, .places = places_}, *encoder);
  give_back(std::move(encoder));
  return rows;
}

data::TokenRow EncodedRows::token_row(int64_t i) const {
  const int64_t length = offsets[i + 1] - offsets[i];
  data::TokenRow row{.ids = std::span(ids).subspan(offsets[i], length), .row = table.first_row() + i};
  if (second_begin[i] < length) row.second_begin = second_begin[i];
  if (!labels.empty()) row.label = labels[i];
  return row;
}

void for_each_encoded(const data::TableSource& source, const RowEncoding& encoding, int workers,
                      const std::function<void(EncodedRows)>& sink) {
  data::TableReader reader(source);
  EncoderPool pool(encoding.tokenizer);
  const auto work = [&](const data::Table& table) { return pool.encode(table, encoding.options, encoding.labels); };
  data::ordered_parallel_map([&] { return reader.next(); }, work, sink, {.workers = workers});
}

data::TableSource make_source(const std::vector<std::string>& files, const std::string& encoding) {
  data::TableSource source;
  source.paths.assign(files.begin(), files.end());
  source.encoding = data::parse_encoding(encoding);
  return source;
}

data::TokenDataset encode_all(const data::TableSource& source, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                              const TextOptions& options, const LabelMap* labels, int workers) {
  data::TokenDatasetBuilder builder(source.paths.empty() ? "" : source.paths.front().string());
  data::TableSource needed = source;
  needed.columns = {options.text_column};
  if (!options.text_pair_column.empty()) needed.columns.push_back(options.text_pair_column);
  if (labels != nullptr) needed.columns.push_back(options.label_column);
  for_each_encoded(needed, {std::move(tokenizer), options, labels}, workers, [&](const EncodedRows& rows) {
    for (int64_t i = 0; i < rows.num_rows(); ++i) builder.append(rows.token_row(i));
  });
  return builder.build();
}

}  // namespace strake::tasks
