#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "strake/tasks/scoring_model.h"

namespace strake::tasks {

struct ScoreReport {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t rows_cut = 0;     // with more tokens than --max_seq_length or --block_size, of those that this run tokenized
  double load_seconds = 0;  // model and tokenizer
  double seconds = 0;       // everything else
  std::string precision;    // "int8 with 2 of 24 linear layers in bf16"
  Json accuracy;            // of PrecisionChoice
};

// What an encoder's head gives, fp32 [rows or tokens, width], for rows [begin, end). Errors (kData, kNumeric) name file
// and row.
at::Tensor score_encoded(const ScoreConfig& config, ScoringModel& model, const EncodedRows& rows, int64_t begin,
                         int64_t end);

// Scores the rows of `input` with an encoder in constant memory: tables of some thousand rows are read and tokenized
// ahead of the one that is scored. `labels` may be null. `sink` gets the tables in order with what the head gives for
// all of their sequences or tokens.
ScoreReport score_rows(const ScoreConfig& config, ScoringModel& model, const LabelMap* labels, data::TableReader& input,
                       const std::function<void(const EncodedRows&, const at::Tensor& outputs)>& sink);

}  // namespace strake::tasks
