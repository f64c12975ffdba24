#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "strake/scoring/score_rows.h"

namespace strake::tasks {

// Scores the batches of an Arrow IPC stream for an engine that drives this process, such as Spark's mapInArrow: one
// batch in, one batch out with the same rows and the columns of prediction_columns.h, at once, until the end of the
// stream. Batches may have any number of rows. The next batch is read and tokenized while one is scored.
struct WorkerConfig {
  WorkerConfig() { score.input = {"standard input"}; }

  scoring::ScoreConfig score;
  std::vector<std::string> output_columns;
  std::vector<std::string> keep_columns;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    constexpr std::array<std::string_view, 4> kOfFiles{"input", "label_column", "encoding", "summary_json"};
    scoring::ScoreConfig::visit_fields(self.score, [&](const char* name, auto& field, const char* help) {
      if (std::ranges::find(kOfFiles, name) == kOfFiles.end()) visit(name, field, help);
    });
    scoring::TaskFlags::visit_fields(self.score.task, visit);
    visit("output_columns", self.output_columns, scoring::kOutputColumnsHelp);
    visit("keep_columns", self.keep_columns, "columns of the input to hand on; default: all, \"\": none");
  }
  void validate() const;
};

// From standard input to standard output. Errors name batch and row; the output stream then has no end.
scoring::ScoreReport work(const WorkerConfig& config);

}  // namespace strake::tasks
