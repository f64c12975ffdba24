#include "strake/tasks/word_rows.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/data/label_lists.h"

namespace strake::tasks {
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
    const bool wants_space = tokenizer_.byte_pair() != nullptr && !word.empty() && !word.starts_with(' ');
    return tokenizer_.encode(wants_space ? " " + word : word, std::nullopt, {.add_special_tokens = false}).ids;
  }

  const tokenizers::Tokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<int32_t>> known_;
};

// Sequences between special tokens, of at most `longest` tokens.
class WordSequences {
 public:
  WordSequences(const tokenizers::Tokenizer& tokenizer, const PieceEnds& ends, int64_t longest, EncodedRows& rows)
      : ends_(ends), longest_(longest), tokens_(tokenizer), rows_(rows) {}

  void append(const std::vector<std::string>& words) {
    const int64_t end = rows_.offsets.back() + longest_ - 1;
    push(ends_.first, {.is_outside = true});
    bool is_cut = false;
    for (size_t w = 0; w < words.size() && !is_cut; ++w) {
      TokenPlace place{.begin = static_cast<int32_t>(w), .end = static_cast<int32_t>(w) + 1};
      for (const int32_t id : tokens_[words[w]]) {
        is_cut = std::ssize(rows_.ids) == end;
        if (is_cut) break;
        push(id, place);
        place.continues_word = true;
      }
    }
    push(ends_.last, {.is_outside = true});
    if (is_cut) rows_.cut_rows.push_back(rows_.num_rows());
    rows_.second_begin.push_back(static_cast<int32_t>(std::ssize(rows_.ids) - rows_.offsets.back()));
    rows_.offsets.push_back(std::ssize(rows_.ids));
  }

 private:
  void push(int32_t id, const TokenPlace& place) {
    rows_.ids.push_back(id);
    rows_.places.push_back(place);
  }

  PieceEnds ends_;
  int64_t longest_;
  WordTokens tokens_;
  EncodedRows& rows_;
};

// `ids`: one for each word of the last sequence.
void append_classes(const std::vector<int32_t>& ids, bool all_tokens, EncodedRows& rows) {
  for (size_t token = rows.classes.size(); token < rows.places.size(); ++token) {
    const TokenPlace& place = rows.places[token];
    const bool has_class = !place.is_outside && (all_tokens || !place.continues_word);
    rows.classes.push_back(has_class ? ids[static_cast<size_t>(place.begin)] : data::kNoClass);
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
  if (classes != nullptr) names = data::label_lists(table, classes->column);
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
    append_classes(classes->labels.ids_of(labels, row, table), classes->all_tokens, rows);
  }
  return rows;
}

}  // namespace strake::tasks
