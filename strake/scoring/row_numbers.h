#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strake/scoring/prediction_columns.h"
#include "strake/scoring/score_rows.h"

namespace strake::scoring {

// A fixed number of fp32 numbers per row, from which, with the row, its columns follow: what the journal keeps. Logits,
// an embedding, a loss, or the places and scores of answers. Of entities any row has as many as it needs: see
// token_entities.h.
bool has_row_numbers(const ScoringModel& model);
int64_t numbers_per_row(const ScoringModel& model);  // PredictionJournal::kAnyWidth of entities

// [rows, numbers_per_row] of rows [begin, end). Errors as of score_encoded() or
// LanguageScorer::losses().
at::Tensor row_numbers(const ScoreConfig& config, ScoringModel& model, const rows::EncodedRows& rows, int64_t begin,
                       int64_t end);

// What the numbers of all rows of `table` stand for.
ScoredRows scored_rows(const ScoringModel& model, const data::Table& table, const at::Tensor& numbers);
// The same of what find_entities() gave. Error (kData) for words that the table does not have.
ScoredRows scored_rows(const ScoringModel& model, const data::Table& table, data::SpanRows entities);

}  // namespace strake::scoring
