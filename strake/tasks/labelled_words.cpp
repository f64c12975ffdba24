#include "strake/tasks/labelled_words.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/label_lists.h"
#include "strake/data/text_pipeline.h"
#include "strake/tasks/document_pieces.h"

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
    const bool wants_space = tokenizer_.byte_pair() != nullptr && !word.starts_with(' ');
    return tokenizer_.encode(wants_space ? " " + word : word, std::nullopt, {.add_special_tokens = false}).ids;
  }

  const tokenizers::Tokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<int32_t>> known_;
};

// Rows of a table.
struct LabelledRows {
  std::vector<int32_t> ids, classes;  // of all tokens
  std::vector<int64_t> offsets{0};
  std::vector<int64_t> rows;
  std::vector<int64_t> cut_rows, left_out;
};

class WordsOfTable {
 public:
  WordsOfTable(const LabelledWords& words, const PieceEnds& ends)
      : words_(words), ends_(ends), room_(words.options.max_seq_length - 2), tokens_(*words.tokenizer) {}

  LabelledRows encode(const data::Table& table) {
    const auto words = data::label_lists(table, words_.options.text_column);
    const auto labels = data::label_lists(table, words_.options.label_column);
    for (int64_t row = 0; row < table.num_rows(); ++row) {
      const auto& of_row = words[static_cast<size_t>(row)];
      const auto& names = labels[static_cast<size_t>(row)];
      if (of_row.size() != names.size()) {
        fail(ErrorKind::kData, "{}: {} words in column '{}' and {} labels in column '{}'", table.where(row),
             of_row.size(), words_.options.text_column, names.size(), words_.options.label_column);
      }
      append(of_row, words_.labels.ids_of(names, row, table), table.first_row() + row);
    }
    return std::move(rows_);
  }

 private:
  void append(const std::vector<std::string>& words, const std::vector<int32_t>& labels, int64_t row) {
    LabelledRows& to = rows_;
    const size_t begin = to.ids.size();
    push(ends_.first, data::kNoClass);
    bool is_cut = false, has_label = false;
    for (size_t w = 0; w < words.size() && !is_cut; ++w) {
      bool is_first = true;
      for (const int32_t id : tokens_[words[w]]) {
        is_cut = std::cmp_equal(to.ids.size() - begin - 1, room_);
        if (is_cut) break;
        push(id, is_first || words_.label_all_tokens ? labels[w] : data::kNoClass);
        is_first = false;
        has_label = true;
      }
    }
    push(ends_.last, data::kNoClass);
    if (is_cut) to.cut_rows.push_back(row);
    if (!has_label) {
      to.left_out.push_back(row);
      to.ids.resize(begin);
      to.classes.resize(begin);
      return;
    }
    to.offsets.push_back(std::ssize(to.ids));
    to.rows.push_back(row);
  }
  void push(int32_t id, int32_t label) {
    rows_.ids.push_back(id);
    rows_.classes.push_back(label);
  }

  const LabelledWords& words_;
  PieceEnds ends_;
  int64_t room_;
  WordTokens tokens_;
  LabelledRows rows_;
};

}  // namespace

data::TableReader open_words(const std::vector<std::string>& files, const TextOptions& options) {
  data::TableSource source = make_source(files, options.encoding);
  source.columns = options.columns();
  data::TableReader input(std::move(source));
  const data::Table rows = input.no_rows();
  for (const std::string& name : {options.text_column, options.label_column}) {
    require(data::holds_lists(rows, name), ErrorKind::kData,
            "{}: column '{}' holds no lists: --task token-classification reads a list of words and one of their labels "
            "from each row",
            files.front(), name);
  }
  return input;
}

data::TokenDataset encode_words(data::TableReader& input, const LabelledWords& words, int workers) {
  const PieceEnds ends = ends_of(*words.tokenizer);
  const std::string file = input.files().front().string();
  data::TokenDatasetBuilder builder(file);
  int64_t num_cut = 0, num_left_out = 0;
  const auto next = [&] { return input.next(); };
  const auto work = [&](const data::Table& table) { return WordsOfTable(words, ends).encode(table); };
  data::ordered_parallel_map(
      next, work,
      [&](const LabelledRows& of_table) {
        num_cut += std::ssize(of_table.cut_rows);
        num_left_out += std::ssize(of_table.left_out);
        for (size_t i = 0; i < of_table.rows.size(); ++i) {
          const auto begin = static_cast<size_t>(of_table.offsets[i]);
          const size_t length = static_cast<size_t>(of_table.offsets[i + 1]) - begin;
          builder.append({.ids = std::span(of_table.ids).subspan(begin, length),
                          .label = data::TokenClasses{std::span(of_table.classes).subspan(begin, length)},
                          .row = of_table.rows[i]});
        }
      },
      {.workers = workers});
  tell_cut_rows(num_cut, words.options);
  data::TokenDataset dataset = builder.build();
  if (num_left_out > 0) {
    log::info("{}: {} of {} rows have no labelled token: left out", file, num_left_out, num_left_out + dataset.size());
  }
  return dataset;
}

}  // namespace strake::tasks
