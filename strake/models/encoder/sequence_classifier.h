#pragma once

#include "strake/models/encoder/encoder_model.h"

namespace strake::models {

// An encoder that gives each sequence a class, any number of labels, or a number.
class SequenceClassifier final : public EncoderModel {
 public:
  explicit SequenceClassifier(EncoderConfig config, double label_smoothing = 0);

  // Of logits [S, num_labels], in fp32 as Transformers has it for the problem: cross entropy for int64 labels [S],
  // smoothed as its LabelSmoother does, squared error for float labels [S], and for float labels [S, num_labels] of 0
  // and 1 the mean of each label's binary cross entropy.
  at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, double divisor) const override;
  int64_t num_targets(int64_t) const override { return 1; }

 private:
  double label_smoothing_;
};

}  // namespace strake::models
