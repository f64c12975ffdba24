#include "strake/scoring/score_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "strake/core/error.h"
#include "strake/rows/known_tokens.h"

namespace strake::scoring {
namespace {

// `row_of`: of a row of outputs.
template <typename RowOf>
void require_finite(const at::Tensor& outputs, const data::Table& table, const RowOf& row_of) {
  const auto* values = outputs.const_data_ptr<float>();
  for (int64_t i = 0; i < outputs.numel(); ++i) {
    if (std::isfinite(values[i])) continue;
    fail(ErrorKind::kNumeric,
         "{}: the model's output is {}, not a finite number: are its weights sound? In bf16 or int8, try --precision "
         "fp32",
         table.where(row_of(i / outputs.size(1))), std::isnan(values[i]) ? std::abs(values[i]) : values[i]);
  }
}

// Errors, with the place in the input, for what the engine would refuse of rows [begin, end).
void check_tokens(const ScoreConfig& config, const models::EncoderConfig& encoder, const rows::EncodedRows& rows,
                  int64_t begin, int64_t end) {
  bool has_second_texts = false;
  for (int64_t i = rows.first_sequence(begin); i < rows.first_sequence(end); ++i) {
    const int64_t length = rows.offsets[i + 1] - rows.offsets[i];
    has_second_texts = has_second_texts || rows.second_begin[i] < length;
    if (length > 0) continue;
    fail(ErrorKind::kData, "{}: the text has no tokens", rows.table.where(rows.row_of_sequence(i)));
  }
  rows::require_known_types(has_second_texts, encoder, config.model_name_or_path);
  const int64_t first = rows.first_token(begin);
  const std::span ids = std::span(rows.ids).subspan(first, static_cast<size_t>(rows.first_token(end) - first));
  if (!ids.empty()) rows::require_known_tokens(std::ranges::max(ids), encoder.vocab_size, config.model_name_or_path);
}

}  // namespace

at::Tensor score_encoded(const ScoreConfig& config, ScoringModel& model, const rows::EncodedRows& rows, int64_t begin,
                         int64_t end) {
  inference::Engine& engine = model.engine();
  check_tokens(config, engine.config(), rows, begin, end);
  const int64_t first_sequence = rows.first_sequence(begin);
  const int64_t num_sequences = rows.first_sequence(end) - first_sequence;
  const auto first_offset = rows.offsets.begin() + first_sequence;
  std::vector<int64_t> offsets(first_offset, first_offset + num_sequences + 1);
  const auto ids = std::span(rows.ids).subspan(offsets.front(), static_cast<size_t>(offsets.back() - offsets.front()));
  for (const int64_t first = offsets.front(); int64_t& offset : offsets) offset -= first;
  const inference::PackedTokens tokens{
      .ids = ids,
      .offsets = offsets,
      .second_begin = std::span(rows.second_begin).subspan(first_sequence, static_cast<size_t>(num_sequences))};
  const int64_t width = engine.width();
  const at::Tensor outputs = at::empty({engine.num_outputs(tokens) / width, width}, at::kFloat);
  try {
    engine.score(tokens, {outputs.mutable_data_ptr<float>(), static_cast<size_t>(outputs.numel())});
  } catch (inference::NotFiniteActivations& error) {
    error.add_context(rows.table.where(rows.row_of_sequence(first_sequence + error.sequence())));
    throw;
  }
  require_finite(outputs, rows.table, [&](int64_t i) {
    const bool is_token = engine.gives_tokens();
    const int64_t sequence = is_token ? std::ranges::upper_bound(offsets, i) - offsets.begin() - 1 : i;
    return rows.row_of_sequence(first_sequence + sequence);
  });
  return outputs;
}

}  // namespace strake::scoring
