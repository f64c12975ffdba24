#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strake/models/block.h"
#include "strake/models/encoder/config.h"

namespace strake::models {

// A sequence classifier (or regressor) as a list of blocks.
class SequenceClassifier {
 public:
  explicit SequenceClassifier(EncoderConfig config);

  const EncoderConfig& config() const { return config_; }
  std::span<const std::unique_ptr<Block>> blocks() const { return blocks_; }
  int64_t num_parameters() const;

  // Loss of logits [S, num_labels] summed over the sequences and divided by `divisor`, the number of targets of the
  // whole optimizer step: cross entropy in fp32 for int64 labels [S], squared error for float labels [S].
  at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, double divisor) const;

 private:
  EncoderConfig config_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace strake::models
