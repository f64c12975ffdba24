#include "strake/monitor/evaluation_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "strake/core/error.h"

namespace strake::monitor {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

double quotient_or_zero(double numerator, double denominator) {
  return denominator == 0 ? 0.0 : numerator / denominator;
}

struct ClassScores {
  double precision;
  double recall;
  double f1;
};

ClassScores scores_of(const ClassCounts& counts) {
  const auto correct = static_cast<double>(counts.correct);
  const auto predicted = static_cast<double>(counts.predicted);
  const auto actual = static_cast<double>(counts.actual);
  return {.precision = quotient_or_zero(correct, predicted),
          .recall = quotient_or_zero(correct, actual),
          .f1 = quotient_or_zero(2 * correct, predicted + actual)};
}

ClassScores mean_scores(std::span<const ClassCounts> classes) {
  ClassScores sum{};
  double occurring = 0;
  for (const ClassCounts& counts : classes) {
    if (counts.predicted == 0 && counts.actual == 0) continue;
    const ClassScores scores = scores_of(counts);
    sum.precision += scores.precision;
    sum.recall += scores.recall;
    sum.f1 += scores.f1;
    occurring += 1;
  }
  return {.precision = sum.precision / occurring, .recall = sum.recall / occurring, .f1 = sum.f1 / occurring};
}

// Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004, from the margins of
// the confusion matrix alone, as scikit-learn computes it.
double matthews_correlation(std::span<const ClassCounts> classes, double rows) {
  double correct = 0;
  double predicted_actual = 0;
  double predicted_squares = 0;
  double actual_squares = 0;
  for (const ClassCounts& counts : classes) {
    const auto predicted = static_cast<double>(counts.predicted);
    const auto actual = static_cast<double>(counts.actual);
    correct += static_cast<double>(counts.correct);
    predicted_actual += predicted * actual;
    predicted_squares += predicted * predicted;
    actual_squares += actual * actual;
  }
  const double covariance = correct * rows - predicted_actual;
  const double predicted_variance = rows * rows - predicted_squares;
  const double actual_variance = rows * rows - actual_squares;
  return quotient_or_zero(covariance, std::sqrt(predicted_variance) * std::sqrt(actual_variance));
}

void check_lengths(size_t predicted, size_t actual) {
  require(predicted == actual, ErrorKind::kData, "{} predictions for {} labels", predicted, actual);
  require(predicted > 0, ErrorKind::kData, "no rows to compute metrics from");
}

bool is_constant(std::span<const double> values) {
  return std::ranges::all_of(values, [first = values.front()](double value) { return value == first; });
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double pearson(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2 || is_constant(x) || is_constant(y)) return kUndefined;
  const double x_mean = mean(x);
  const double y_mean = mean(y);
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - x_mean;
    const double dy = y[i] - y_mean;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  const double correlation = xy / (std::sqrt(xx) * std::sqrt(yy));
  return std::isnan(correlation) ? kUndefined : std::clamp(correlation, -1.0, 1.0);  // rounding may pass 1
}

// Ranks from 1; equal values share the mean of the ranks they cover.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t row) { return values[row]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double shared = static_cast<double>(begin + 1 + end) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = shared;
    begin = end;
  }
  return ranks;
}

double spearman(std::span<const double> x, std::span<const double> y) {
  const auto is_finite = [](double value) { return std::isfinite(value); };  // NaN has no place in an order
  if (!std::ranges::all_of(x, is_finite) || !std::ranges::all_of(y, is_finite)) return kUndefined;
  return pearson(ranks_of(x), ranks_of(y));
}

}  // namespace

NamedValues ClassificationMetrics::named_values() const {
  return {{"accuracy", accuracy},
          {"f1", f1},
          {"precision", precision},
          {"recall", recall},
          {"matthews_correlation", matthews_correlation}};
}

NamedValues MultiLabelMetrics::named_values() const {
  return {{"accuracy", accuracy}, {"f1", f1}, {"precision", precision}, {"recall", recall}};
}

NamedValues RegressionMetrics::named_values() const {
  return {{"mse", mse}, {"mae", mae}, {"pearson", pearson}, {"spearmanr", spearmanr}};
}

ClassificationMetrics classification_metrics(std::span<const int64_t> predicted, std::span<const int64_t> actual,
                                             int64_t num_classes) {
  require(num_classes >= 1, ErrorKind::kInternal, "classification metrics of {} classes", num_classes);
  check_lengths(predicted.size(), actual.size());
  ClassificationMetrics metrics;
  metrics.classes.resize(static_cast<size_t>(num_classes));
  const auto class_of = [&](int64_t id, const char* what, size_t row) {
    require(id >= 0 && id < num_classes, ErrorKind::kData, "row {}: {} {} is not a class id from 0 to {}", row, what,
            id, num_classes - 1);
    return static_cast<size_t>(id);
  };
  int64_t correct = 0;
  for (size_t row = 0; row < predicted.size(); ++row) {
    const size_t guess = class_of(predicted[row], "prediction", row);
    const size_t truth = class_of(actual[row], "label", row);
    ++metrics.classes[guess].predicted;
    ++metrics.classes[truth].actual;
    if (guess != truth) continue;
    ++metrics.classes[truth].correct;
    ++correct;
  }
  const auto rows = static_cast<double>(predicted.size());
  const ClassScores scores = num_classes == 2 ? scores_of(metrics.classes[1]) : mean_scores(metrics.classes);
  metrics.accuracy = static_cast<double>(correct) / rows;
  metrics.precision = scores.precision;
  metrics.recall = scores.recall;
  metrics.f1 = scores.f1;
  metrics.matthews_correlation = matthews_correlation(metrics.classes, rows);
  return metrics;
}

MultiLabelMetrics multi_label_metrics(std::span<const char> predicted, std::span<const char> actual,
                                      int64_t num_labels) {
  check_lengths(predicted.size(), actual.size());
  require(num_labels > 0 && predicted.size() % static_cast<size_t>(num_labels) == 0, ErrorKind::kInternal,
          "{} decisions for rows of {} labels", predicted.size(), num_labels);
  const auto width = static_cast<size_t>(num_labels);
  ClassCounts counts;
  int64_t right_rows = 0;
  for (size_t begin = 0; begin < predicted.size(); begin += width) {
    bool is_right = true;
    for (size_t i = begin; i < begin + width; ++i) {
      const bool guess = predicted[i] != 0;
      const bool truth = actual[i] != 0;
      counts.predicted += guess ? 1 : 0;
      counts.actual += truth ? 1 : 0;
      counts.correct += guess && truth ? 1 : 0;
      is_right = is_right && guess == truth;
    }
    right_rows += is_right ? 1 : 0;
  }
  const ClassScores scores = scores_of(counts);
  const size_t rows = predicted.size() / width;
  return {.accuracy = static_cast<double>(right_rows) / static_cast<double>(rows),
          .f1 = scores.f1,
          .precision = scores.precision,
          .recall = scores.recall};
}

RegressionMetrics regression_metrics(std::span<const double> predicted, std::span<const double> actual) {
  check_lengths(predicted.size(), actual.size());
  RegressionMetrics metrics;
  for (size_t row = 0; row < predicted.size(); ++row) {
    const double difference = predicted[row] - actual[row];
    metrics.mse += difference * difference;
    metrics.mae += std::abs(difference);
  }
  const auto rows = static_cast<double>(predicted.size());
  metrics.mse /= rows;
  metrics.mae /= rows;
  metrics.pearson = pearson(predicted, actual);
  metrics.spearmanr = spearman(predicted, actual);
  return metrics;
}

}  // namespace strake::monitor
