#pragma once

#include "strake/models/gpt2/config.h"
#include "strake/models/model.h"

namespace strake::models {

// GPT-2 (Radford et al. 2019) as a causal language model: every token of a sequence but the first is a target.
class Gpt2 final : public Model {
 public:
  explicit Gpt2(Gpt2Config config, double label_smoothing = 0);

  const Gpt2Config& config() const { return config_; }

  // Of the negative log-likelihoods of all targets, smoothed as kernels::cross_entropy has it; there are no labels.
  at::Tensor loss(const at::Tensor& nll, const at::Tensor& labels, double divisor) const override;
  int64_t num_targets(int64_t length) const override { return length - 1; }
  double initializer_range() const override { return config_.initializer_range; }
  std::string checkpoint_prefix() const override { return "transformer."; }
  bool is_buffer(std::string_view checkpoint_name) const override;

 private:
  Gpt2Config config_;
};

}  // namespace strake::models
