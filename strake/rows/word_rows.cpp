#include "strake/rows/word_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/data/label_lists.h"

namespace strake::rows {
namespace {

// Tokens of words, which come again and again.
class WordTokens {
 public:
  explicit WordTokens(const tokenizers::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  const std::vector<int32_t>& operator[](const std::string& word) {
    const auto [place, is_new] = known_.try_emplace(word);
    if (is_new) place->second = encode(word);
    return place->second;
  }

 private:
  std::vector<int32_t> encode(const std::string& word) const {
    return tokenizer_.encode(word, std::nullopt, {.add_special_tokens = false, .prefix_space = true}).ids;
  }

  const tokenizers::Tokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<int32_t>> known_;
};

// Sequences between special tokens, of at most `longest` tokens: the first ones of the words, or the last ones.
class WordSequences {
 public:
  WordSequences(const tokenizers::Tokenizer& tokenizer, const PieceEnds& ends, int64_t longest, EncodedRows& rows)
      : ends_(ends),
        room_(static_cast<size_t>(longest - 2)),
        keeps_end_(tokenizer.spec().truncation_side == tokenizers::Direction::kLeft),
        tokens_(tokenizer),
        rows_(rows) {}

  void append(const std::vector<std::string>& words) {
    row_.clear();
    for (size_t w = 0; w < words.size() && (keeps_end_ || row_.size() <= room_); ++w) append_word(words[w], w);
    const bool is_cut = row_.size() > room_;
    if (is_cut) rows_.cut_rows.push_back(rows_.num_rows());
    auto kept = std::span(row_);
    if (is_cut) kept = keeps_end_ ? kept.last(room_) : kept.first(room_);
    if (!kept.empty()) kept.front().place.continues_word = false;  // its first token may be cut off
    push({ends_.first, {.is_outside = true}});
    for (const Token& token : kept) push(token);
    push({ends_.last, {.is_outside = true}});
    rows_.second_begin.push_back(static_cast<int32_t>(kept.size() + 2));
    rows_.offsets.push_back(std::ssize(rows_.ids));
  }

 private:
  struct Token {
    int32_t id;
    TokenPlace place;
  };

  void append_word(const std::string& word, size_t number) {
    TokenPlace place{.begin = static_cast<int32_t>(number), .end = static_cast<int32_t>(number) + 1};
    for (const int32_t id : tokens_[word]) {
      row_.push_back({id, place});
      place.continues_word = true;
    }
  }
  void push(const Token& token) {
    rows_.ids.push_back(token.id);
    rows_.places.push_back(token.place);
  }

  PieceEnds ends_;
  size_t room_;
  bool keeps_end_;
  WordTokens tokens_;
  EncodedRows& rows_;
  std::vector<Token> row_;
};

// Of each class what the tokens of a word have behind its first: none, or what goes on with an entity.
std::vector<int32_t> continued_classes(const WordClasses& classes) {
  const std::vector<std::string>& names = classes.labels.names();
  std::vector<int32_t> continued(names.size(), data::kNoClass);
  if (!classes.all_tokens) return continued;
  for (size_t id = 0; id < names.size(); ++id) {
    const bool begins = names[id].starts_with("B-");
    const auto inside = begins ? std::ranges::find(names, "I-" + names[id].substr(2)) : names.end();
    continued[id] =
        static_cast<int32_t>(inside == names.end() ? static_cast<std::ptrdiff_t>(id) : inside - names.begin());
  }
  return continued;
}

// `ids`: one for each word of the last sequence.
void append_classes(const std::vector<int32_t>& ids, const std::vector<int32_t>& continued, EncodedRows& rows) {
  for (size_t token = rows.classes.size(); token < rows.places.size(); ++token) {
    const TokenPlace& place = rows.places[token];
    int32_t id = data::kNoClass;
    if (!place.is_outside) id = ids[static_cast<size_t>(place.begin)];
    if (place.continues_word) id = continued[static_cast<size_t>(id)];
    rows.classes.push_back(id);
  }
}

}  // namespace

WordEncoder::WordEncoder(const tokenizers::Tokenizer& tokenizer, const TextOptions& options)
    : tokenizer_(tokenizer), options_(options), ends_(ends_of(tokenizer)) {
  require(options.max_seq_length > 2, ErrorKind::kUsage,
          "--max_seq_length {}: of words it is at least 3, of which two tokens are special", options.max_seq_length);
}

EncodedRows WordEncoder::encode(const data::Table& table, const WordClasses* classes, int64_t first_row) const {
  const auto words = data::label_lists(table, options_.text_column);
  std::vector<std::vector<std::string>> names;
  std::vector<int32_t> continued;
  if (classes != nullptr) {
    names = classes->labels.lists(table, classes->column);
    continued = continued_classes(*classes);
  }
  EncodedRows rows{.table = table};
  rows.offsets.resize(static_cast<size_t>(first_row) + 1);
  rows.second_begin.resize(static_cast<size_t>(first_row));
  WordSequences sequences(tokenizer_, ends_, options_.max_seq_length, rows);
  for (int64_t row = first_row; row < table.num_rows(); ++row) {
    const auto& of_row = words[static_cast<size_t>(row)];
    sequences.append(of_row);
    if (classes == nullptr) continue;
    const auto& labels = names[static_cast<size_t>(row)];
    if (of_row.size() != labels.size()) {
      fail(ErrorKind::kData, "{}: {} words in column '{}' and {} labels in column '{}'", table.where(row),
           of_row.size(), options_.text_column, labels.size(), classes->column);
    }
    append_classes(classes->labels.ids_of(labels, row, table), continued, rows);
  }
  return rows;
}

}  // namespace strake::rows
