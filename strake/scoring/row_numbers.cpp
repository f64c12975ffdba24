#include "strake/scoring/row_numbers.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/data/label_lists.h"
#include "strake/rows/answer_spans.h"
#include "strake/scoring/prediction_journal.h"

namespace strake::scoring {
namespace {

bool finds_answers(const ScoringModel& model) { return model.task.task == ScoringTask::kQuestionAnswering; }
bool predicts_text(const ScoringModel& model) { return model.task.task == ScoringTask::kCausalLm; }

std::span<float> numbers_of_row(const at::Tensor& numbers, int64_t row) {
  const int64_t width = numbers.size(1);
  return {numbers.mutable_data_ptr<float>() + row * width, static_cast<size_t>(width)};
}

// `logits`: [T, 2], of the tokens of rows [begin, end).
at::Tensor answer_numbers(const ScoringModel& model, const rows::EncodedRows& rows, int64_t begin, int64_t end,
                          const at::Tensor& logits) {
  const data::TextColumn contexts = rows.table.text(model.text.text_pair_column);
  const at::Tensor numbers = at::empty({end - begin, numbers_per_row(model)}, at::kFloat);
  const std::span<const float> values(logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel()));
  const int64_t first_token = rows.first_token(begin);
  const auto find = [&](int64_t row) {
    const auto of_row = values.subspan(2 * (rows.first_token(row) - first_token));
    rows::put_answers(rows::find_answers(rows, row, contexts[row], of_row, model.task.answers),
                      numbers_of_row(numbers, row - begin));
  };
  // A GPU has nothing to do meanwhile.
  const auto parts = static_cast<int>(std::min<int64_t>(num_threads(), end - begin));
  run_side_by_side(parts, [&](int part) {
    const int64_t behind = begin + (end - begin) * (part + 1) / parts;
    for (int64_t row = begin + (end - begin) * part / parts; row < behind; ++row) find(row);
  });
  return numbers;
}

}  // namespace

bool has_row_numbers(const ScoringModel& model) { return model.task.task != ScoringTask::kTokenClassification; }

int64_t numbers_per_row(const ScoringModel& model) {
  if (!has_row_numbers(model)) return PredictionJournal::kAnyWidth;
  if (predicts_text(model)) return kNumbersPerLoss;
  return finds_answers(model) ? rows::kNumbersPerAnswer * model.task.answers.top_k : model.engine().width();
}

at::Tensor row_numbers(const ScoreConfig& config, ScoringModel& model, const rows::EncodedRows& rows, int64_t begin,
                       int64_t end) {
  if (auto* language = std::get_if<LanguageScorer>(&model.computes)) return language->losses(rows, begin, end);
  const at::Tensor outputs = score_encoded(config, model, rows, begin, end);
  return finds_answers(model) ? answer_numbers(model, rows, begin, end, outputs) : outputs;
}

ScoredRows scored_rows(const ScoringModel& model, const data::Table& table, const at::Tensor& numbers) {
  if (!finds_answers(model)) return numbers;
  const data::TextColumn contexts = table.text(model.text.text_pair_column);
  data::SpanRows answers;
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    answers.push_back(rows::get_answers(numbers_of_row(numbers, row), contexts[row]));
  }
  return answers;
}

ScoredRows scored_rows(const ScoringModel& model, const data::Table& table, data::SpanRows entities) {
  if (model.text.form != rows::RowForm::kWords) return entities;
  WordLabels words;
  for (const std::vector<std::string>& list : data::label_lists(table, model.text.text_column)) {
    auto& names = words.names.emplace_back(list.size());
    auto& scores = words.scores.emplace_back(list.size());
    for (data::LabelledSpan& word : entities[words.names.size() - 1]) {
      const auto place = static_cast<size_t>(word.begin);
      require(place < list.size(), ErrorKind::kData, "a label of word {} of {}", place, list.size());
      names[place] = std::move(word.label);
      scores[place] = word.score;
    }
  }
  return words;
}

}  // namespace strake::scoring
