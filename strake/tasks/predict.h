#pragma once

#include <string>

#include "strake/tasks/score_rows.h"

namespace strake::tasks {

// Scores a table: Parquet with all input columns plus `prediction` and `probabilities`, in input order.
struct PredictConfig {
  ScoreConfig score;
  std::string output;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    ScoreConfig::visit_fields(self.score, visit);
    visit("output", self.output, "Parquet file to write");
  }
  void validate() const;
};

ScoreReport predict(const PredictConfig& config);

}  // namespace strake::tasks
