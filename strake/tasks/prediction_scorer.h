#pragma once

#include "strake/data/table_reader.h"
#include "strake/tasks/predict.h"
#include "strake/tasks/prediction_journal.h"
#include "strake/tasks/prediction_output.h"

namespace strake::tasks {

struct ScoringRun {
  const ScoreConfig& config;
  ScoringModel& model;
  PredictionJournal& journal;
  PredictionOutput& output;
};

// Scores what of `source` is not in the journal and appends all of it to the output, which it does not finish. Reading
// and tokenizing, scoring, and writing overlap. Fills rows, tokens and waiting times of the report.
void score_into(const ScoringRun& run, const data::TableSource& source, PredictReport& report);

}  // namespace strake::tasks
