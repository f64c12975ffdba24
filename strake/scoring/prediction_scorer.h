#pragma once

#include <cstdint>

#include "strake/data/table_reader.h"
#include "strake/scoring/predict_report.h"
#include "strake/scoring/prediction_journal.h"
#include "strake/scoring/prediction_output.h"
#include "strake/scoring/score_config.h"

namespace strake::scoring {

struct ScoringRun {
  const ScoreConfig& config;
  ScoringModel& model;
  PredictionJournal& journal;
  PredictionOutput& output;
};

// What a run has in memory beside the model, at most: tables with tokens and results on their way from the input to the
// output, a row group of the output, and the buffers of `columns` columns. On top come what of a row is beyond
// data::kTableBytes and, of windows, the repeated questions.
struct StreamMemory {
  int64_t tables = 0;
  int64_t bytes = 0;
};
StreamMemory stream_memory(const ScoreConfig& config, const ScoringModel& model, int64_t columns);

// Scores what of `input`, whose rows begin with `first_row`, is not in the journal and appends all of it to the output,
// which it does not finish. Reading and tokenizing, scoring, and writing overlap. Fills rows, tokens and waiting times
// of the report.
void score_into(const ScoringRun& run, data::TableReader& input, int64_t first_row, PredictReport& report);

}  // namespace strake::scoring
