#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "strake/data/token_dataset.h"
#include "strake/inference/encoder_pass.h"
#include "strake/models/gpt2/config.h"
#include "strake/tasks/score_config.h"
#include "strake/tasks/text_loss.h"
#include "strake/training/evaluator.h"

namespace strake::tasks {

// A causal language model with all its weights, which computes as an evaluation in training does, bit for bit, on all
// cores or a GPU. A piece's numbers depend on its tokens alone, not on what is computed beside it.
class LanguageScorer {
 public:
  // `text`: how pieces are cut. Errors: kConfig for a folder that lacks weights, or a GPU that is not there.
  LanguageScorer(const ScoreConfig& config, models::Gpt2Config model, const TextOptions& text);
  LanguageScorer(LanguageScorer&&) noexcept;
  ~LanguageScorer();

  const models::Gpt2Config& config() const;
  inference::MemoryUse memory() const;  // of the GPU, where it computes

  // Of rows [begin, end), which are pieces of texts, fp32 [rows, kNumbersPerLoss]. A token counts once: where it is
  // first in a piece that another one is before, it is predicted there. Errors: kNumeric, with the place in the input,
  // for a loss that is not finite; kConfig for a token that the model does not have.
  at::Tensor losses(const EncodedRows& rows, int64_t begin, int64_t end);

  // Over all targets of a dataset, whose pieces share nothing. kNumeric, naming `source`, for a loss that is not
  // finite.
  training::Evaluation evaluate(const data::TokenDataset& pieces, const std::string& source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strake::tasks
