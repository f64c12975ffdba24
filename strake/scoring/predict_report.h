#pragma once

#include <cstdint>
#include <string>

#include "strake/core/json.h"
#include "strake/scoring/score_rows.h"

namespace strake::scoring {

// What a run of `strake predict` tells, and the manifest beside its output.
struct PredictReport {
  ScoreReport score;        // rows and tokens of the whole output, seconds of this run
  int64_t rows_scored = 0;  // in this run; earlier, interrupted ones scored the others
  int64_t tokens_scored = 0;
  double seconds_waiting_for_input = 0;   // in which no row was ready to be scored
  double seconds_waiting_for_output = 0;  // in which nothing was scored because writing lagged behind
  uint64_t peak_resident_bytes = 0;
  int64_t resumes = 0;
  std::string output;    // the file, or the folder
  std::string manifest;  // the file
};
Json to_json(const PredictReport& report);

}  // namespace strake::scoring
