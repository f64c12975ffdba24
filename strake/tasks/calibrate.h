#pragma once

#include "strake/monitor/evaluation_metrics.h"
#include "strake/scoring/precision_file.h"
#include "strake/scoring/score_rows.h"
#include "strake/tasks/evaluation_rows.h"

namespace strake::tasks {

struct Calibration {
  scoring::PrecisionRecord record;
  monitor::NamedValues metrics;  // of fp32, as evaluate reports them, then how near bf16 and int8 are
  scoring::ScoreReport score;    // rows and tokens of the data; seconds of all passes
};

// Scores the rows of `input` in fp32, bf16 and int8 and writes PrecisionFlags::file_of the model, atomically.
// Where int8 alone does not keep the promise (precision_file.h), the linear layers that change the head's numbers most,
// measured one at a time on up to some hundred sequences, stay in bf16: as few of them as it takes. The rows that are
// read, their tokens and the head's numbers for them are in memory. Errors as of evaluate.
Calibration calibrate(const scoring::ScoreConfig& config, const scoring::ScoringPlan& plan, EvaluationRows& input);

}  // namespace strake::tasks
