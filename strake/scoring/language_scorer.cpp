#include "strake/scoring/language_scorer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/rows/known_tokens.h"

namespace strake::scoring {
namespace {

constexpr size_t kFewestTokens = 2;  // of a piece that has a target

// The pieces of some rows that have targets.
struct Pieces {
  data::TokenDataset dataset;
  std::vector<int64_t> rows;    // of each piece, from the first one on
  std::vector<size_t> skipped;  // of each piece: its first targets, which the piece before has predicted, too
};

Pieces pieces_of(const rows::EncodedRows& rows, int64_t begin, int64_t end, int64_t shared) {
  data::TokenDatasetBuilder builder(rows.table.where(begin));
  std::vector<int64_t> rows_of_pieces;
  std::vector<size_t> skipped;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = rows.first_sequence(row); i < rows.first_sequence(row + 1); ++i) {
      const auto length = static_cast<size_t>(rows.offsets[i + 1] - rows.offsets[i]);
      if (length < kFewestTokens) continue;
      builder.append({.ids = std::span(rows.ids).subspan(rows.offsets[i], length), .row = i});
      rows_of_pieces.push_back(row - begin);
      skipped.push_back(i > rows.first_sequence(row) && shared > 0 ? static_cast<size_t>(shared) - 1 : 0);
    }
  }
  return {.dataset = builder.build(), .rows = std::move(rows_of_pieces), .skipped = std::move(skipped)};
}

struct Sum {
  double nll = 0;
  int64_t targets = 0;

  void add(const Sum& other) {
    nll += other.nll;
    targets += other.targets;
  }
  TextLoss mean() const {
    if (targets == 0) return {};
    return {.loss = static_cast<float>(nll / static_cast<double>(targets)),
            .predicted_tokens = static_cast<int32_t>(targets)};
  }
};

std::vector<Sum> sums_of(FrozenLanguageModel& model, const Pieces& pieces) {
  std::vector<Sum> sums(pieces.rows.size());
  training::for_each_sequence_nll(model.request(pieces.dataset), [&](int64_t i, std::span<const float> nll) {
    const auto counted = nll.subspan(pieces.skipped[static_cast<size_t>(i)]);
    sums[static_cast<size_t>(i)] = {.nll = std::accumulate(counted.begin(), counted.end(), 0.0),
                                    .targets = std::ssize(counted)};
  });
  return sums;
}

}  // namespace

LanguageScorer::LanguageScorer(const ScoreConfig& config, models::Gpt2Config model, const rows::TextOptions& text)
    : config_(std::move(model)),
      model_(std::make_unique<FrozenLanguageModel>(config, std::make_unique<models::Gpt2>(config_))),
      block_size_(text.max_seq_length),
      shared_(text.doc_stride) {}

at::Tensor LanguageScorer::losses(const rows::EncodedRows& rows, int64_t begin, int64_t end) {
  const Pieces pieces = pieces_of(rows, begin, end, shared_);
  rows::require_known_tokens(pieces.dataset, config().vocab_size, model_->folder().string());
  const std::vector<Sum> of_pieces = sums_of(*model_, pieces);
  std::vector<Sum> of_rows(static_cast<size_t>(end - begin));
  for (size_t i = 0; i < of_pieces.size(); ++i) of_rows[static_cast<size_t>(pieces.rows[i])].add(of_pieces[i]);
  const at::Tensor numbers = at::empty({end - begin, kNumbersPerLoss}, at::kFloat);
  for (int64_t row = 0; row < end - begin; ++row) {
    const Sum& sum = of_rows[static_cast<size_t>(row)];
    if (!std::isfinite(sum.nll)) model_->refuse_loss(sum.nll, rows.table.where(begin + row));
    put_loss(sum.mean(), numbers.mutable_data_ptr<float>() + row * kNumbersPerLoss);
  }
  return numbers;
}

}  // namespace strake::scoring
