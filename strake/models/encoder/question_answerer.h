#pragma once

#include "strake/models/encoder/encoder_model.h"

namespace strake::models {

// An encoder that finds the answer to a question in a text: which tokens of the sequence, of both, are its first and
// its last one; the sequence's first token where there is none. What it gives is that of SpanHeadBlock.
class QuestionAnswerer final : public EncoderModel {
 public:
  explicit QuestionAnswerer(EncoderConfig config);

  // The mean of both tokens' negative log-likelihoods, as Transformers' ...ForQuestionAnswering, for int64 labels
  // [S, 2], places in `log_probabilities`. (There the tokens that sequences are padded with have probabilities, too.)
  at::Tensor loss(const at::Tensor& log_probabilities, const at::Tensor& labels, double divisor) const override;
  int64_t num_targets(int64_t) const override { return 1; }
};

// The config.json of one, loadable by AutoModelForQuestionAnswering.
std::string question_answerer_json(const EncoderConfig& config, const std::string& dtype);

}  // namespace strake::models
