#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <vector>

#include "strake/models/encoder/sequence_classifier.h"
#include "strake/tensors/packed_batch.h"

namespace strake::inference {

enum class Precision { kFp32, kBf16 };

// A fine-tuned classifier ready to score. Thread-safe: immutable.
class Scorer {
 public:
  // `folder`: config.json and model.safetensors of a sequence classifier. Error (kConfig) if the head is missing.
  Scorer(const std::filesystem::path& folder, Precision precision);

  const models::EncoderConfig& config() const { return model_.config(); }
  // fp32 [S, num_labels]. A sequence's logits depend on its neighbours in the batch only as far as the matrix library's
  // order of summation does.
  at::Tensor logits(const tensors::PackedBatch& batch) const;

 private:
  models::SequenceClassifier model_;
  std::vector<at::Tensor> blocks_;  // flat parameters
};

}  // namespace strake::inference
