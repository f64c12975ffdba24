#include "strake/rows/answer_windows.h"

#include <algorithm>
#include <span>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/text_lists.h"
#include "strake/rows/answer_spans.h"

namespace strake::rows {
namespace {

constexpr data::TokenSpan kFirstToken{.first = 0, .last = 0};  // [CLS] or <s>: there is no answer

// Of the text that an answer is a part of, in code points.
struct CharacterRange {
  int64_t begin = 0;
  int64_t end = 0;  // as begin: there is no answer
};

// The last token that begins at or before the answer, and the first one that ends at or behind it. These are the wrong
// way round where both are of one character that is the answer, as emojis are several tokens in bytes.
data::TokenSpan tokens_of(const CharacterRange& answer, std::span<const TokenPlace> places) {
  if (answer.begin == answer.end) return kFirstToken;
  const auto is_inside = [](const TokenPlace& place) { return !place.is_outside; };
  const auto first_inside = std::ranges::find_if(places, is_inside);
  const auto behind = std::find_if_not(first_inside, places.end(), is_inside);
  if (first_inside == behind || first_inside->begin > answer.begin || std::prev(behind)->end < answer.end) {
    return kFirstToken;
  }
  const auto is_late = [&](const TokenPlace& place) { return place.begin > answer.begin; };
  const auto first = std::prev(std::find_if(first_inside, behind, is_late));
  const auto last = std::find_if(first_inside, behind, [&](const auto& place) { return place.end >= answer.end; });
  const auto [begin, end] =
      std::minmax({static_cast<int32_t>(first - places.begin()), static_cast<int32_t>(last - places.begin())});
  return {.first = begin, .last = end};
}

class WindowBuilder {
 public:
  WindowBuilder(const LabelledQuestions& questions, KeepTables keep, const std::string& file)
      : questions_(questions), keep_(keep), file_(file), builder_(file) {}

  void append(EncodedRows rows) {
    const auto answers = data::placed_texts(rows.table, questions_.answers_column);
    const data::TextColumn contexts = rows.table.text(questions_.options.text_pair_column);
    for (int64_t row = 0; row < rows.num_rows(); ++row) {
      const auto& of_row = answers[static_cast<size_t>(row)];
      const CharacterRange answer = of_row.empty() ? CharacterRange() : place(of_row.front(), contexts[row], rows, row);
      if (answer.begin == answer.end) num_unanswered_ += 1;
      for (int64_t window = rows.first_sequence(row); window < rows.first_sequence(row + 1); ++window) {
        append_window(rows, window, answer);
      }
    }
    num_rows_ += rows.num_rows();
    if (keep_ == KeepTables::kNo) return;
    rows.ids = {};
    tables_.push_back({.rows = std::move(rows), .answers = {}});
    for (const auto& of_row : answers) {
      auto& texts = tables_.back().answers.emplace_back();
      for (const data::PlacedText& answer : of_row) texts.push_back(answer.text);
    }
  }

  AnswerWindows build() {
    if (num_windows_ > num_rows_) {
      log::info("{}: {} row{} as {} windows of at most {} tokens", file_, num_rows_, num_rows_ == 1 ? "" : "s",
                num_windows_, questions_.options.max_seq_length);
    }
    if (num_unanswered_ > 0) log::info("{}: {} of {} rows have no answer", file_, num_unanswered_, num_rows_);
    if (num_elsewhere_ > 0) {
      log::warning("{} of {} rows have another text than the answer's in the answer's place, the first one {}",
                   num_elsewhere_, num_rows_, first_elsewhere_);
    }
    return {.dataset = builder_.build(), .tables = std::move(tables_)};
  }

 private:
  CharacterRange place(const data::PlacedText& answer, std::string_view context, const EncodedRows& rows, int64_t row) {
    const CodePoints points(context);
    const int64_t length = CodePoints(answer.text).size();
    if (answer.start > points.size() - length) {
      fail(ErrorKind::kData, "{}: column '{}' has the answer_start {} of an answer of {} characters in a text of {}",
           rows.table.where(row), questions_.answers_column, answer.start, length, points.size());
    }
    const CharacterRange range{.begin = answer.start, .end = answer.start + length};
    if (points.part(static_cast<int32_t>(range.begin), static_cast<int32_t>(range.end)) != answer.text) {
      if (num_elsewhere_++ == 0) first_elsewhere_ = rows.table.where(row);
    }
    return range;
  }

  void append_window(const EncodedRows& rows, int64_t window, const CharacterRange& answer) {
    const auto begin = static_cast<size_t>(rows.offsets[window]);
    const size_t length = static_cast<size_t>(rows.offsets[window + 1]) - begin;
    data::TokenRow row = rows.token_row(window);
    row.label = tokens_of(answer, std::span(rows.places).subspan(begin, length));
    builder_.append(row);
    num_windows_ += 1;
  }

  const LabelledQuestions& questions_;
  KeepTables keep_;
  const std::string& file_;
  data::TokenDatasetBuilder builder_;
  std::vector<AnsweredRows> tables_;
  int64_t num_windows_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_unanswered_ = 0;
  int64_t num_elsewhere_ = 0;
  std::string first_elsewhere_;
};

}  // namespace

int64_t bytes_of(const AnsweredRows& table, const std::string& context_column) {
  const data::TextColumn contexts = table.rows.table.text(context_column);
  auto bytes = static_cast<int64_t>(table.rows.places.size() * sizeof(TokenPlace));
  for (int64_t row = 0; row < table.rows.table.num_rows(); ++row) bytes += std::ssize(contexts[row]);
  return bytes;
}

data::TableReader open_questions(const std::vector<std::string>& files, const LabelledQuestions& questions) {
  data::TableSource source = make_source(files, questions.options.encoding);
  source.columns = {questions.options.text_column, questions.options.text_pair_column, questions.answers_column};
  data::TableReader input = open_input(std::move(source), questions.options);
  data::placed_texts(input.no_rows(), questions.answers_column);
  return input;
}

AnswerWindows encode_answers(data::TableReader& input, const LabelledQuestions& questions, KeepTables keep,
                             int workers) {
  const std::string file = input.files().front().string();
  WindowBuilder builder(questions, keep, file);
  for_each_encoded(input, {questions.tokenizer, questions.options, nullptr, Places::kOfTokens}, workers,
                   [&](EncodedRows rows) { builder.append(std::move(rows)); });
  return builder.build();
}

}  // namespace strake::rows
