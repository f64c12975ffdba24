#pragma once

#include "strake/monitor/evaluation_metrics.h"
#include "strake/tasks/score_rows.h"

namespace strake::tasks {

struct EvaluateConfig {
  ScoreConfig score{.text = {.label_column = "label"}};
  bool calibrate = false;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    ScoreConfig::visit_fields(self.score, visit);
    visit("calibrate", self.calibrate,
          "measure how near bf16 and int8 come to fp32 on these rows, choose the linear layers that int8 leaves in "
          "bf16, and write strake_precision.json beside the model");
  }
  void validate() const;
};

struct EvaluateReport {
  ScoreReport score;
  monitor::NamedValues metrics;
};

// Scores a labelled table and compares: classification or regression metrics, as the model's problem is. With
// `calibrate` those of fp32, and what calibrate() found.
EvaluateReport evaluate(const EvaluateConfig& config);

}  // namespace strake::tasks
