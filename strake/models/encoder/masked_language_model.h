#pragma once

#include <string_view>

#include "strake/models/encoder/encoder_model.h"
#include "strake/models/encoder/token_masking.h"

namespace strake::models {

// An encoder that predicts tokens which were replaced (Devlin et al. 2019; RoBERTa's: anew in each step).
class MaskedLanguageModel final : public EncoderModel {
 public:
  MaskedLanguageModel(EncoderConfig config, const TokenMasking& masking, double label_smoothing = 0);

  // Evaluations mask the same tokens each time.
  tensors::PackedBatch prepared(tensors::PackedBatch batch, const std::optional<PhiloxKey>& key) const override;
  // Of the negative log-likelihoods of all masked tokens; there are no labels.
  at::Tensor loss(const at::Tensor& nll, const at::Tensor& labels, double divisor) const override;
  int64_t num_targets(int64_t length) const override { return masking_.num_masked(length); }
  bool is_buffer(std::string_view checkpoint_name) const override;

 private:
  TokenMasking masking_;
};

// The config.json of one, loadable by AutoModelForMaskedLM.
std::string masked_language_model_json(const EncoderConfig& config, const std::string& dtype);

}  // namespace strake::models
