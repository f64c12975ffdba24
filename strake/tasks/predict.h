#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strake/core/json.h"
#include "strake/scoring/predict_report.h"
#include "strake/scoring/score_rows.h"

namespace strake::tasks {

// Scores a table: Parquet with the input's columns and those of prediction_columns.h, in input order, every row once. A
// run that was killed and is started again goes on behind the last rows whose logits are durable (prediction_job.h) and
// gives the bytes of one that never stopped.
struct PredictConfig {
  scoring::ScoreConfig score;
  std::string output;
  std::vector<std::string> output_columns;
  std::vector<std::string> keep_columns;
  std::string shard;
  std::optional<int64_t> rows_per_file;
  bool overwrite_output = false;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    scoring::ScoreConfig::visit_fields(self.score, [&](const char* name, auto& field, const char* help) {
      const bool is_label = std::string_view(name) == "label_column";
      visit(name, field,
            is_label ? "not of predict, which keeps all columns: strake evaluate compares with labels" : help);
    });
    scoring::TaskFlags::visit_fields(self.score.task, visit);
    visit("output", self.output, "Parquet file to write, or, with a / at the end, folder for several");
    visit("output_columns", self.output_columns, scoring::kOutputColumnsHelp);
    visit("keep_columns", self.keep_columns, "columns of the input to write; default: all, \"\": none");
    visit("shard", self.shard, "score one part of the rows: 2/8 is the third of eight");
    visit("rows_per_file", self.rows_per_file, "of the files in an output folder; default: 1000000");
    visit("overwrite_output", self.overwrite_output,
          "delete what an earlier run left, finished in a folder or interrupted, and start over");
  }
  void validate() const;
  int64_t rows_of_file() const { return rows_per_file.value_or(1'000'000); }
};

scoring::PredictReport predict(const PredictConfig& config);

}  // namespace strake::tasks
