#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "strake/scoring/scoring_model.h"

namespace strake::scoring {

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
at::Tensor score_encoded(const ScoreConfig& config, ScoringModel& model, const rows::EncodedRows& rows, int64_t begin,
                         int64_t end);

}  // namespace strake::scoring
