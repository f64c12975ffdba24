#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "strake/data/token_dataset.h"
#include "strake/models/gpt2/config.h"
#include "strake/scoring/frozen_language_model.h"
#include "strake/scoring/score_config.h"
#include "strake/scoring/text_loss.h"

namespace strake::scoring {

// A causal language model, which says how well it predicts texts.
class LanguageScorer {
 public:
  // `text`: how pieces are cut. Errors: those of FrozenLanguageModel.
  LanguageScorer(const ScoreConfig& config, models::Gpt2Config model, const rows::TextOptions& text);

  const models::Gpt2Config& config() const { return config_; }
  inference::MemoryUse memory() const { return model_->memory(block_size_); }

  // Of rows [begin, end), which are pieces of texts, fp32 [rows, kNumbersPerLoss]. A token counts once: where it is
  // first in a piece that another one is before, it is predicted there. Errors: kNumeric, with the place in the input,
  // for a loss that is not finite; kConfig for a token that the model does not have.
  at::Tensor losses(const rows::EncodedRows& rows, int64_t begin, int64_t end);

  // Over all targets of a dataset, whose pieces share nothing. kNumeric, naming `source`, for a loss that is not
  // finite.
  training::Evaluation evaluate(const data::TokenDataset& pieces, const std::string& source) {
    return model_->evaluate(pieces, source);
  }

 private:
  models::Gpt2Config config_;
  std::unique_ptr<FrozenLanguageModel> model_;
  int64_t block_size_;
  int64_t shared_;  // tokens of the piece before
};

}  // namespace strake::scoring
