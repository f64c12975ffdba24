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

class WordsOfTable {
 public:
  WordsOfTable(const data::Table& table, const LabelledWords& words, const PieceEnds& ends)
      : words_(words),
        ends_(ends),
        room_(words.options.max_seq_length - 2),
        tokens_(*words.tokenizer),
        rows_{.table = table} {}

  EncodedRows encode() {
    const data::Table& table = rows_.table;
    const auto words = data::label_lists(table, words_.options.text_column);
    const auto labels = data::label_lists(table, words_.options.label_column);
    for (int64_t row = 0; row < table.num_rows(); ++row) {
      const auto& of_row = words[static_cast<size_t>(row)];
      const auto& names = labels[static_cast<size_t>(row)];
      if (of_row.size() != names.size()) {
        fail(ErrorKind::kData, "{}: {} words in column '{}' and {} labels in column '{}'", table.where(row),
             of_row.size(), words_.options.text_column, names.size(), words_.options.label_column);
      }
      append(of_row, words_.labels.ids_of(names, row, table));
    }
    return std::move(rows_);
  }

 private:
  void append(const std::vector<std::string>& words, const std::vector<int32_t>& labels) {
    const int64_t end = rows_.offsets.back() + 1 + room_;
    push_special(ends_.first);
    bool is_cut = false;
    for (size_t w = 0; w < words.size() && !is_cut; ++w) {
      int32_t label = labels[w];
      for (const int32_t id : tokens_[words[w]]) {
        is_cut = std::ssize(rows_.ids) == end;
        if (is_cut) break;
        push(id, label, {});
        if (!words_.label_all_tokens) label = data::kNoClass;
      }
    }
    push_special(ends_.last);
    if (is_cut) rows_.cut_rows.push_back(rows_.num_rows());
    rows_.second_begin.push_back(static_cast<int32_t>(std::ssize(rows_.ids) - rows_.offsets.back()));
    rows_.offsets.push_back(std::ssize(rows_.ids));
  }
  void push(int32_t id, int32_t label, const TokenPlace& place) {
    rows_.ids.push_back(id);
    rows_.classes.push_back(label);
    rows_.places.push_back(place);
  }
  void push_special(int32_t id) { push(id, data::kNoClass, {.is_outside = true}); }

  const LabelledWords& words_;
  PieceEnds ends_;
  int64_t room_;
  WordTokens tokens_;
  EncodedRows rows_;
};

}  // namespace

LabelMap labels_of_words(const models::EncoderConfig& model) {
  models::EncoderConfig of_lists = model;
  of_lists.problem_type = models::ProblemType::kMultiLabelClassification;
  return LabelMap::of(of_lists);
}

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

void for_each_labelled(data::TableReader& input, const LabelledWords& words, int workers,
                       const std::function<void(EncodedRows)>& sink) {
  require(words.options.max_seq_length > 2, ErrorKind::kUsage,
          "--max_seq_length {}: of words it is at least 3, of which two tokens are special",
          words.options.max_seq_length);
  const PieceEnds ends = ends_of(*words.tokenizer);
  const auto next = [&] { return input.next(); };
  const auto work = [&](const data::Table& table) { return WordsOfTable(table, words, ends).encode(); };
  data::ordered_parallel_map(next, work, sink, {.workers = workers});
}

data::TokenDataset encode_words(data::TableReader& input, const LabelledWords& words, int workers) {
  const std::string file = input.files().front().string();
  data::TokenDatasetBuilder builder(file);
  int64_t num_cut = 0, num_left_out = 0;
  for_each_labelled(input, words, workers, [&](const EncodedRows& rows) {
    num_cut += std::ssize(rows.cut_rows);
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      const data::TokenRow row = rows.token_row(i);
      const std::span classes = std::get<data::TokenClasses>(row.label).of_tokens;
      const bool has_label = std::ranges::any_of(classes, [](int32_t id) { return id != data::kNoClass; });
      if (has_label) builder.append(row);
      num_left_out += has_label ? 0 : 1;
    }
  });
  tell_cut_rows(num_cut, words.options);
  data::TokenDataset dataset = builder.build();
  if (num_left_out > 0) {
    log::info("{}: {} of {} rows have no labelled token: left out", file, num_left_out, num_left_out + dataset.size());
  }
  return dataset;
}

}  // namespace strake::tasks
