#include "strake/scoring/task_results.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "strake/core/error.h"
#include "strake/data/text_lists.h"
#include "strake/monitor/entity_metrics.h"
#include "strake/rows/answer_spans.h"
#include "strake/rows/squad_metrics.h"

namespace strake::scoring {
namespace {

// Index of the first of the largest numbers of each row.
std::vector<int64_t> largest_of_rows(const at::Tensor& outputs) {
  const auto width = static_cast<size_t>(outputs.size(1));
  std::vector<int64_t> classes;
  for (auto rest = numbers_of(outputs); !rest.empty(); rest = rest.subspan(width)) {
    const auto row = rest.first(width);
    classes.push_back(std::ranges::max_element(row) - row.begin());
  }
  return classes;
}

template <typename Value>
double share_of_equals(const std::vector<Value>& a, const std::vector<Value>& b) {
  require(a.size() == b.size(), ErrorKind::kInternal, "{} results are compared with {}", a.size(), b.size());
  require(!a.empty(), ErrorKind::kData, "the texts have no tokens to compare");
  const auto same = std::inner_product(a.begin(), a.end(), b.begin(), int64_t{0}, std::plus<>(),
                                       [](const Value& x, const Value& y) { return x == y ? 1 : 0; });
  return static_cast<double>(same) / static_cast<double>(a.size());
}

class ClassResults final : public TaskResults {
 public:
  explicit ClassResults(int64_t num_classes) : num_classes_(num_classes) {}

  void add(const rows::EncodedRows& rows, const at::Tensor& outputs) override {
    std::ranges::copy(largest_of_rows(outputs), std::back_inserter(predicted_));
    for (const rows::Label& label : rows.labels) actual_.push_back(std::get<int32_t>(label));
  }
  monitor::NamedValues metrics() const override {
    return monitor::classification_metrics(predicted_, actual_, num_classes_).named_values();
  }
  std::string main_metric() const override { return "accuracy"; }
  std::optional<double> agreement(const TaskResults& exact) const override {
    return share_of_equals(predicted_, dynamic_cast<const ClassResults&>(exact).predicted_);
  }

 private:
  int64_t num_classes_;
  std::vector<int64_t> predicted_, actual_;
};

class LabelResults final : public TaskResults {
 public:
  explicit LabelResults(int64_t num_labels) : num_labels_(num_labels) {}

  void add(const rows::EncodedRows& rows, const at::Tensor& outputs) override {
    for (const float logit : numbers_of(outputs)) predicted_.push_back(logit > 0 ? 1 : 0);
    actual_.resize(actual_.size() + rows.labels.size() * static_cast<size_t>(num_labels_));
    auto row = actual_.end() - std::ssize(rows.labels) * num_labels_;
    for (const rows::Label& labels : rows.labels) {
      for (const int32_t id : std::get<std::vector<int32_t>>(labels)) row[id] = 1;
      row += num_labels_;
    }
  }
  monitor::NamedValues metrics() const override {
    return monitor::multi_label_metrics(predicted_, actual_, num_labels_).named_values();
  }
  std::string main_metric() const override { return "f1"; }
  // Of rows that get the same labels.
  std::optional<double> agreement(const TaskResults& exact) const override {
    return monitor::multi_label_metrics(predicted_, dynamic_cast<const LabelResults&>(exact).predicted_, num_labels_)
        .accuracy;
  }

 private:
  int64_t num_labels_;
  std::vector<char> predicted_, actual_;  // [rows, num_labels_], whether a row has the label
};

class NumberResults final : public TaskResults {
 public:
  void add(const rows::EncodedRows& rows, const at::Tensor& outputs) override {
    std::ranges::copy(numbers_of(outputs), std::back_inserter(predicted_));
    for (const rows::Label& label : rows.labels) actual_.push_back(std::get<float>(label));
  }
  monitor::NamedValues metrics() const override {
    return monitor::regression_metrics(predicted_, actual_).named_values();
  }
  std::string main_metric() const override { return "pearson"; }
  std::optional<double> agreement(const TaskResults& /*exact*/) const override { return std::nullopt; }

 private:
  std::vector<double> predicted_, actual_;
};

class TokenResults final : public TaskResults {
 public:
  explicit TokenResults(const ResultsOf& what) : are_compared_(what.are_compared) {
    if (what.has_labels) entities_.emplace(what.task.entities.labels);
  }

  void add(const rows::EncodedRows& rows, const at::Tensor& outputs) override {
    const std::vector<int64_t> classes = largest_of_rows(outputs);
    for (size_t token = 0; are_compared_ && token < classes.size(); ++token) {
      if (!rows.places[token].is_outside) classes_.push_back(classes[token]);
    }
    if (!entities_) return;
    for (int64_t row = 0; row < rows.num_rows(); ++row) count_entities(rows, row, classes);
  }
  monitor::NamedValues metrics() const override {
    return entities_ ? entities_->metrics().named_values() : monitor::NamedValues();
  }
  std::string main_metric() const override { return entities_ ? "f1" : ""; }
  std::optional<double> agreement(const TaskResults& exact) const override {
    return share_of_equals(classes_, dynamic_cast<const TokenResults&>(exact).classes_);
  }

 private:
  void count_entities(const rows::EncodedRows& rows, int64_t row, const std::vector<int64_t>& classes) {
    std::vector<int32_t> predicted, actual;
    for (int64_t token = rows.first_token(row); token < rows.first_token(row + 1); ++token) {
      if (rows.classes[token] == data::kNoClass) continue;
      predicted.push_back(static_cast<int32_t>(classes[token]));
      actual.push_back(rows.classes[token]);
    }
    entities_->add({.predicted = predicted, .actual = actual});
  }

  bool are_compared_;
  std::vector<int64_t> classes_;  // of the text's tokens, if they are compared
  std::optional<monitor::EntityCounter> entities_;
};

class AnswerResults final : public TaskResults {
 public:
  explicit AnswerResults(const ResultsOf& what)
      : rules_(what.task.answers),
        context_column_(what.text.text_pair_column),
        truth_column_(what.answers_column),
        are_compared_(what.are_compared) {}

  void add(const rows::EncodedRows& rows, const at::Tensor& outputs) override {
    const data::TextColumn contexts = rows.table.text(context_column_);
    const std::span<const float> logits = numbers_of(outputs);
    std::vector<std::vector<std::string>> truths;
    if (!truth_column_.empty()) truths = data::text_lists(rows.table, truth_column_);
    for (int64_t row = 0; row < rows.num_rows(); ++row) {
      const auto own = logits.subspan(2 * rows.first_token(row));
      std::string best = rows::find_answers(rows, row, contexts[row], own, rules_).front().label;
      if (!truths.empty()) {
        const rows::AnswerScore score = rows::score_answer(best, truths[row], rules_.squad_version());
        sum_.exact_match += score.exact_match;
        sum_.f1 += score.f1;
      }
      if (are_compared_) answers_.push_back(std::move(best));
    }
    rows_ += rows.num_rows();
  }
  monitor::NamedValues metrics() const override {
    if (truth_column_.empty()) return {};
    const auto rows = static_cast<double>(rows_);
    return {{"exact_match", 100 * sum_.exact_match / rows}, {"f1", 100 * sum_.f1 / rows}};
  }
  std::string main_metric() const override { return truth_column_.empty() ? "" : "f1"; }
  std::optional<double> agreement(const TaskResults& exact) const override {
    return share_of_equals(answers_, dynamic_cast<const AnswerResults&>(exact).answers_);
  }

 private:
  rows::AnswerRules rules_;
  std::string context_column_;
  std::string truth_column_;
  bool are_compared_;
  std::vector<std::string> answers_;  // the best one of each row, if they are compared
  rows::AnswerScore sum_;
  int64_t rows_ = 0;
};

class EmbeddingResults final : public TaskResults {
 public:
  explicit EmbeddingResults(const ResultsOf& what)
      : has_similarities_(what.has_labels), are_compared_(what.are_compared) {}

  void add(const rows::EncodedRows& rows, const at::Tensor& outputs) override {
    width_ = static_cast<size_t>(outputs.size(1));
    if (!are_compared_) directions_.clear();
    size_t row = directions_.size() / width_;
    for (auto rest = numbers_of(outputs); !rest.empty(); rest = rest.subspan(width_)) {
      const auto vector = rest.first(width_);
      const double length = std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0));
      for (const float value : vector) {
        directions_.push_back(length > 0 ? static_cast<float>(double{value} / length) : 0);
      }
    }
    if (!has_similarities_) return;
    for (const rows::Label& label : rows.labels) {
      const auto first = direction(row++);
      const auto second = direction(row++);
      predicted_.push_back(std::inner_product(first.begin(), first.end(), second.begin(), 0.0));
      similarities_.push_back(std::get<float>(label));
    }
  }
  monitor::NamedValues metrics() const override {
    if (!has_similarities_) return {};
    const monitor::RegressionMetrics found = monitor::regression_metrics(predicted_, similarities_);
    return {{"pearson", found.pearson}, {"spearmanr", found.spearmanr}};
  }
  std::string main_metric() const override { return has_similarities_ ? "spearmanr" : ""; }

  std::optional<double> agreement(const TaskResults& exact) const override {
    const auto& other = dynamic_cast<const EmbeddingResults&>(exact);
    require(directions_.size() == other.directions_.size(), ErrorKind::kInternal, "{} numbers are compared with {}",
            directions_.size(), other.directions_.size());
    const size_t rows = directions_.size() / width_;
    const std::vector<double> mean = other.mean();
    double sum = 0;
    for (size_t row = 0; row < rows; ++row) sum += cosine(direction(row), other.direction(row), mean);
    return std::clamp(sum / static_cast<double>(rows), 0.0, 1.0);  // below 0: as far as can be
  }

 private:
  std::span<const float> direction(size_t row) const { return std::span(directions_).subspan(row * width_, width_); }

  std::vector<double> mean() const {
    const size_t rows = directions_.size() / width_;
    std::vector<double> mean(width_);
    for (size_t i = 0; i < directions_.size(); ++i) mean[i % width_] += directions_[i] / static_cast<double>(rows);
    return mean;
  }

  static double cosine(std::span<const float> a, std::span<const float> b, std::span<const double> mean) {
    double aa = 0;
    double bb = 0;
    double ab = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      const double x = a[i] - mean[i];
      const double y = b[i] - mean[i];
      aa += x * x;
      bb += y * y;
      ab += x * y;
    }
    return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
  }

  bool has_similarities_;
  bool are_compared_;
  size_t width_ = 1;
  std::vector<float> directions_;                 // each of length 1; those of the last rows, or of all to compare
  std::vector<double> predicted_, similarities_;  // of pairs
};

}  // namespace

std::span<const float> numbers_of(const at::Tensor& outputs) {
  return {outputs.const_data_ptr<float>(), static_cast<size_t>(outputs.numel())};
}

std::unique_ptr<TaskResults> make_results(const ResultsOf& what) {
  switch (what.task.task) {
    case ScoringTask::kTokenClassification:
      return std::make_unique<TokenResults>(what);
    case ScoringTask::kQuestionAnswering:
      return std::make_unique<AnswerResults>(what);
    case ScoringTask::kFeatureExtraction:
      return std::make_unique<EmbeddingResults>(what);
    default:
      if (what.encoder.problem() == models::ProblemType::kRegression) return std::make_unique<NumberResults>();
      if (what.encoder.problem() == models::ProblemType::kMultiLabelClassification) {
        return std::make_unique<LabelResults>(what.encoder.num_labels());
      }
      return std::make_unique<ClassResults>(what.encoder.num_labels());
  }
}

}  // namespace strake::scoring
