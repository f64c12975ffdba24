#pragma once

#include "strake/monitor/evaluation_metrics.h"
#include "strake/tasks/score_rows.h"

namespace strake::tasks {

struct EvaluateConfig {
  ScoreConfig score{.text = {.label_column = "label"}};

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    ScoreConfig::visit_fields(self.score, visit);
  }
  void validate() const;
};

struct EvaluateReport {
  ScoreReport score;
  monitor::NamedValues metrics;
};

// Scores a labelled table and compares: classification or regression metrics, as the model's problem is.
EvaluateReport evaluate(const EvaluateConfig& config);

}  // namespace strake::tasks
