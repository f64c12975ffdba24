#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace strake::monitor {

// Name and value in the order of reports, as Hugging Face's `evaluate` names them ("accuracy", "f1", ...).
using NamedValues = std::vector<std::pair<std::string, double>>;

struct ClassCounts {
  int64_t correct = 0;    // rows of this class that were predicted as it
  int64_t predicted = 0;  // rows predicted as this class
  int64_t actual = 0;     // rows of this class
};

// precision, recall and f1 follow scikit-learn: with 2 classes those of class 1 (average="binary"), with more the
// unweighted mean (average="macro") over the classes that occur among the true or the predicted ids. 0/0 is 0.
struct ClassificationMetrics {
  double accuracy = 0;
  double f1 = 0;
  double precision = 0;
  double recall = 0;
  double matthews_correlation = 0;   // Gorodkin's R_K for more than 2 classes
  std::vector<ClassCounts> classes;  // [num_classes]

  NamedValues named_values() const;
};

// Compares class ids row by row; time and memory O(rows + num_classes). Error (kData) for no rows, for spans of
// different lengths and for an id outside [0, num_classes), naming its row; (kInternal) for no classes.
ClassificationMetrics classification_metrics(std::span<const int64_t> predicted, std::span<const int64_t> actual,
                                             int64_t num_classes);

// Of any number of labels per row, as scikit-learn has them of indicator matrices: precision, recall and f1 over all
// decisions (average="micro"; 0/0 is 0), accuracy the share of rows without a wrong decision.
struct MultiLabelMetrics {
  double accuracy = 0;
  double f1 = 0;
  double precision = 0;
  double recall = 0;

  NamedValues named_values() const;
};

// `predicted` and `actual`: [rows, num_labels], whether the row has the label. Error (kData) for no rows and for spans
// of different lengths; (kInternal) for no labels or part of a row.
MultiLabelMetrics multi_label_metrics(std::span<const char> predicted, std::span<const char> actual,
                                      int64_t num_labels);

// As scikit-learn (mse, mae) and SciPy (pearson; spearmanr with tied values sharing their mean rank). The correlations
// are NaN where they are undefined: fewer than 2 rows, constant values, or values that are not finite. JSON writers put
// null for NaN.
struct RegressionMetrics {
  double mse = 0;
  double mae = 0;
  double pearson = 0;
  double spearmanr = 0;

  NamedValues named_values() const;
};

// Error (kData) for no rows and for spans of different lengths.
RegressionMetrics regression_metrics(std::span<const double> predicted, std::span<const double> actual);

}  // namespace strake::monitor
