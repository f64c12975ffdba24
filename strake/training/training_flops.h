#pragma once

#include <vector>

#include "strake/models/model.h"

namespace strake::training {

// Blocks but the last compute their forward pass twice if only their inputs are kept.
enum class Recomputation { kNotCounted, kCounted };

// Floating-point operations of the matrix products of a block's two passes. Backward has what is computed again, if
// that counts.
struct BlockFlops {
  double forward = 0;
  double backward = 0;
};

// Of every block, for one micro-batch.
std::vector<BlockFlops> block_flops(const models::Model& model, const models::BatchShape& batch,
                                    Recomputation recomputation);

// Floating-point operations of the matrix products of a training step, a multiply-add being 2, on real tokens only;
// without recomputation they are the numerator of model FLOPs utilization. A forward pass through everything; backward,
// the gradient of every trained weight, and that of every activation on the way to one: about 6 for each number of a
// matrix and token, 4 where the weight is frozen (as for LoRA) and 2 before the first trained block. Embeddings, norms
// and activations count 0. Hugging Face's total_flos instead is 6 x parameters x padded tokens, without attention.
class TrainingFlops {
 public:
  // Goes through the model once; what is trained must not change afterwards.
  explicit TrainingFlops(const models::Model& model, Recomputation recomputation = Recomputation::kNotCounted);
  double operator()(const models::BatchShape& batch) const {
    return per_token_ * static_cast<double>(batch.tokens) + per_sequence_ * static_cast<double>(batch.sequences) +
           per_pair_ * batch.squared_lengths + per_target_ * static_cast<double>(batch.targets);
  }

 private:
  double per_token_ = 0;
  double per_sequence_ = 0;
  double per_pair_ = 0;    // of tokens of a sequence
  double per_target_ = 0;  // where they are not what the tokens say
};

}  // namespace strake::training
