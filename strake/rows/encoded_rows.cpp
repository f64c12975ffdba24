#include "strake/rows/encoded_rows.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "strake/core/error.h"
#include "strake/core/utf8.h"
#include "strake/rows/word_rows.h"
#include "strake/tokenizers/unicode.h"

namespace strake::rows {
namespace {

struct Request {
  const TextOptions& options;
  const LabelMap* labels;
  int64_t first_row;
  Places places;
};

// Places of tokens become those of the words that they are parts of.
void widen_to_words(const std::vector<tokenizers::TokenSource>& sources, std::span<TokenPlace> places) {
  for (size_t begin = 0; begin < places.size();) {
    size_t end = begin + 1;
    while (end < places.size() && sources[end] == sources[begin]) ++end;
    const TokenPlace word{
        .begin = places[begin].begin, .end = places[end - 1].end, .is_outside = places[begin].is_outside};
    std::ranges::fill(places.subspan(begin, end - begin), word);
    begin = end;
  }
}

// Says of ever later code points of a text whether there is a space at one or before it.
class Spaces {
 public:
  explicit Spaces(std::string_view text) : text_(text) {}
  bool is_near(int32_t place) {
    for (; place_ < place && byte_ < text_.size(); ++place_) {
      before_ = text_[byte_];
      do ++byte_;
      while (byte_ < text_.size() && (text_[byte_] & 0xC0) == 0x80);
    }
    return before_ == ' ' || (byte_ < text_.size() && text_[byte_] == ' ');
  }

 private:
  std::string_view text_;
  size_t byte_ = 0;
  int32_t place_ = 0;
  char before_ = 0;
};

// Tokens that go on with a word, as Transformers' pipeline tells them: by the prefix that WordPiece gives them, of
// other models by spaces. Unknown tokens begin words.
void mark_continuations(const tokenizers::Tokenizer& tokenizer, std::string_view text,
                        const tokenizers::Encoding& encoding, std::span<TokenPlace> places) {
  const std::optional<int32_t> unknown = tokenizer.id_of_role("unk_token");
  const auto* word_piece = std::get_if<tokenizers::WordPieceOptions>(&tokenizer.spec().model);
  const bool has_prefix = word_piece != nullptr && !word_piece->continuing_subword_prefix.empty();
  Spaces spaces(text);
  for (size_t i = 0; i < places.size(); ++i) {
    TokenPlace& place = places[i];
    if (place.is_outside || encoding.ids[i] == unknown) continue;
    const auto length = static_cast<size_t>(place.end - place.begin);
    place.continues_word =
        has_prefix ? count_characters(encoding.tokens[i]) != length : place.begin > 0 && !spaces.is_near(place.begin);
  }
}

// Appends a sequence with the places of its tokens in text `text` of the pair.
void append_with_places(const tokenizers::Encoding& encoding, int32_t text, Places places, EncodedRows& rows) {
  rows.ids.insert(rows.ids.end(), encoding.ids.begin(), encoding.ids.end());
  for (size_t i = 0; i < encoding.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    rows.places.push_back({.begin = begin, .end = end, .is_outside = encoding.sources[i].text != text});
  }
  if (places == Places::kOfWords) {
    widen_to_words(encoding.sources, std::span(rows.places).last(encoding.size()));
  }
  rows.second_begin.push_back(
      static_cast<int32_t>(std::ranges::find(encoding.type_ids, 1) - encoding.type_ids.begin()));
  rows.offsets.push_back(std::ssize(rows.ids));
}

void encode_with_places(const tokenizers::Tokenizer& tokenizer, std::string_view text, const Request& request,
                        EncodedRows& rows) {
  const tokenizers::Truncation truncation{.max_length = request.options.max_seq_length};
  const tokenizers::Encoding encoding =
      tokenizer.encode(text, std::nullopt, {.truncation = truncation, .overflow = false});
  append_with_places(encoding, 0, request.places, rows);
  if (request.places == Places::kWithContinuations) {
    mark_continuations(tokenizer, text, encoding, std::span(rows.places).last(encoding.size()));
  }
  if (encoding.was_cut) rows.cut_rows.push_back(rows.num_rows() - 1);
}

// Error if the question leaves `least` tokens or less for the context.
void require_room_beside(const tokenizers::Tokenizer& tokenizer, std::string_view question, int64_t least,
                         const TextOptions& options) {
  const tokenizers::Encoding alone = tokenizer.encode(question, std::nullopt, {.add_special_tokens = false});
  const int64_t added = tokenizer.spec().post_processor.added(true);
  const int64_t room = std::max<int64_t>(0, options.max_seq_length - added - std::ssize(alone.ids));
  require(room > least, ErrorKind::kData,
          "the question leaves {} of {} tokens to the context, which must be more than --doc_stride {}", room,
          options.max_seq_length, options.doc_stride);
}

std::string_view without_leading_space(std::string_view text) {
  const std::string_view stripped = tokenizers::strip(text);
  return stripped.empty() ? stripped : text.substr(static_cast<size_t>(stripped.data() - text.data()));
}

// The windows of a question and its context.
void encode_windows(const tokenizers::Tokenizer& tokenizer, std::string_view question, std::string_view context,
                    const Request& request, EncodedRows& rows) {
  const TextOptions& options = request.options;
  if (options.strips_questions) question.remove_prefix(question.size() - without_leading_space(question).size());
  require(!question.empty(), ErrorKind::kData, "column '{}' is empty: there is no question", options.text_column);
  const tokenizers::Truncation windows{.max_length = options.max_seq_length,
                                       .stride = options.doc_stride,
                                       .strategy = tokenizers::TruncationStrategy::kOnlySecond};
  bool has_context = false;
  const auto append = [&](const tokenizers::Encoding& window) {
    const auto is_of_context = [](const tokenizers::TokenSource& source) { return source.text == 1; };
    has_context = has_context || std::ranges::any_of(window.sources, is_of_context);
    append_with_places(window, 1, request.places, rows);
  };
  try {
    tokenizer.encode_windows(question, context, windows, append);
  } catch (const Error&) {
    require_room_beside(tokenizer, question, options.doc_stride, options);
    throw;
  }
  if (!has_context) require_room_beside(tokenizer, question, 0, options);
  require(has_context, ErrorKind::kData, "column '{}' has no tokens: there is nothing to look for an answer in",
          options.text_pair_column);
  rows.first_sequences.push_back(std::ssize(rows.offsets) - 1);
}

// Whether it was cut.
bool append_sequence(tokenizers::FastEncoder& encoder, std::string_view text, std::optional<std::string_view> pair,
                     const TextOptions& options, EncodedRows& rows) {
  if (options.strips_texts) {
    text = tokenizers::strip(text);
    if (pair) pair = tokenizers::strip(*pair);
  }
  rows.second_begin.push_back(static_cast<int32_t>(encoder.encode(text, pair, options.max_seq_length, rows.ids)));
  rows.offsets.push_back(std::ssize(rows.ids));
  return encoder.was_cut();
}

void encode_text(tokenizers::FastEncoder& encoder, std::string_view text, std::optional<std::string_view> pair,
                 const TextOptions& options, EncodedRows& rows) {
  if (append_sequence(encoder, text, pair, options, rows)) rows.cut_rows.push_back(rows.num_rows() - 1);
}

void encode_apart(tokenizers::FastEncoder& encoder, std::string_view first, std::string_view second,
                  const TextOptions& options, EncodedRows& rows) {
  const bool first_was_cut = append_sequence(encoder, first, std::nullopt, options, rows);
  const bool second_was_cut = append_sequence(encoder, second, std::nullopt, options, rows);
  if (first_was_cut || second_was_cut) rows.cut_rows.push_back(rows.num_rows());
  rows.first_sequences.push_back(std::ssize(rows.offsets) - 1);
}

void encode_pieces(tokenizers::FastEncoder& encoder, std::string_view text, const TextOptions& options,
                   EncodedRows& rows) {
  std::vector<int32_t> ids;
  if (options.start_token) ids.push_back(*options.start_token);
  encoder.encode(text, std::nullopt, std::nullopt, ids);
  if (std::ssize(ids) > options.max_seq_length) rows.cut_rows.push_back(rows.num_rows());
  for (std::span<const int32_t> rest = ids; !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(options.max_seq_length)));
    rows.ids.insert(rows.ids.end(), piece.begin(), piece.end());
    rows.second_begin.push_back(static_cast<int32_t>(piece.size()));
    rows.offsets.push_back(std::ssize(rows.ids));
    const bool is_last = piece.size() == rest.size();
    rest = rest.subspan(is_last ? piece.size() : piece.size() - static_cast<size_t>(options.doc_stride));
  }
  rows.first_sequences.push_back(std::ssize(rows.offsets) - 1);
}

void encode_row(tokenizers::FastEncoder& encoder, std::string_view text, std::optional<std::string_view> pair,
                const Request& request, EncodedRows& rows) {
  const TextOptions& options = request.options;
  switch (options.form) {
    case RowForm::kApart:
      encode_apart(encoder, text, *pair, options, rows);
      break;
    case RowForm::kPieces:
      encode_pieces(encoder, text, options, rows);
      break;
    case RowForm::kWindows:
      encode_windows(encoder.tokenizer(), text, *pair, request, rows);
      break;
    case RowForm::kSequence:
    case RowForm::kWords:  // which is encoded elsewhere
      if (request.places == Places::kNone) {
        encode_text(encoder, text, pair, options, rows);
      } else {
        encode_with_places(encoder.tokenizer(), text, request, rows);
      }
  }
}

EncodedRows encode_table(const data::Table& table, const Request& request, tokenizers::FastEncoder& encoder) {
  const auto& [options, labels, first_row, places] = request;
  const data::TextColumn texts = table.text(options.text_column);
  std::optional<data::TextColumn> pairs;
  if (!options.text_pair_column.empty()) pairs = table.text(options.text_pair_column);

  EncodedRows rows{.table = table};
  if (options.is_split() || options.form == RowForm::kApart) {
    rows.first_sequences.resize(static_cast<size_t>(first_row) + 1);
  } else {
    rows.offsets.resize(static_cast<size_t>(first_row) + 1);
    rows.second_begin.resize(static_cast<size_t>(first_row));
  }
  for (int64_t row = first_row; row < table.num_rows(); ++row) {
    if (texts.is_null(row) || (pairs && pairs->is_null(row))) {
      fail(ErrorKind::kData, "{}: column '{}' is null where text is expected", table.where(row),
           texts.is_null(row) ? options.text_column : options.text_pair_column);
    }
    const std::optional<std::string_view> pair = pairs ? std::optional((*pairs)[row]) : std::nullopt;
    try {
      encode_row(encoder, texts[row], pair, request, rows);
    } catch (Error& error) {
      error.add_context(table.where(row));
      throw;
    }
  }
  if (labels != nullptr) rows.labels = labels->map(table, options.label_column, first_row);
  return rows;
}

}  // namespace

EncoderPool::EncoderPool(std::shared_ptr<const tokenizers::Tokenizer> tokenizer, Places places)
    : tokenizer_(std::move(tokenizer)), places_(places) {}

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
  if (options.form == RowForm::kWords) {
    require(labels == nullptr, ErrorKind::kInternal, "lists of words are encoded with the labels of texts");
    return WordEncoder(*tokenizer_, options).encode(table, nullptr, first_row);
  }
  auto encoder = take();
  EncodedRows rows =
      encode_table(table, {.options = options, .labels = labels, .first_row = first_row, .places = places_}, *encoder);
  give_back(std::move(encoder));
  return rows;
}

void TextOptions::validate() const {
  require(max_seq_length > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive", max_seq_length);
  if (label_column.empty()) return;
  require(label_column != text_column, ErrorKind::kUsage, "--label_column and --text_column are both '{}'",
          printable(label_column));
  require(label_column != text_pair_column, ErrorKind::kUsage, "--label_column and --text_pair_column are both '{}'",
          printable(label_column));
}

std::vector<std::string> TextOptions::columns() const {
  std::vector<std::string> names{text_column};
  if (!text_pair_column.empty() && text_pair_column != text_column) names.push_back(text_pair_column);
  if (!label_column.empty()) names.push_back(label_column);
  return names;
}

int64_t EncodedRows::row_of_sequence(int64_t sequence) const {
  if (first_sequences.empty()) return sequence;
  return std::ranges::upper_bound(first_sequences, sequence) - first_sequences.begin() - 1;
}

data::TokenRow EncodedRows::token_row(int64_t i) const {
  const int64_t length = offsets[i + 1] - offsets[i];
  data::TokenRow row{.ids = std::span(ids).subspan(offsets[i], length), .row = table.first_row() + i};
  if (second_begin[i] < length) row.second_begin = second_begin[i];
  if (!labels.empty()) std::visit([&row](const auto& label) { row.label = label; }, labels[i]);
  if (!classes.empty()) row.label = data::TokenClasses{std::span(classes).subspan(offsets[i], length)};
  return row;
}

}  // namespace strake::rows
