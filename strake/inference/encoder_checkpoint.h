#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "strake/core/error.h"
#include "strake/inference/encoder_source.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_head.h"
#include "strake/models/weights.h"
#include "strake/tensors/checkpoint_files.h"

namespace strake::inference {

// The checkpoint that the weights of an encoder with its head are read from, block by block.
class EncoderCheckpoint {
 public:
  // Warns of tensors that the model has no use for, as config.json may be that of a smaller one. Errors: kConfig for
  // files that are no checkpoint.
  explicit EncoderCheckpoint(const EncoderSource& from);

  const models::SequenceClassifier& model() const { return model_; }
  const tensors::CheckpointFiles& files() const { return files_; }
  const models::Block& embeddings() const { return *model_.blocks().front(); }
  std::span<const std::unique_ptr<models::Block>> layers() const {
    return model_.blocks().subspan(1, model_.blocks().size() - 2);
  }
  const models::Block* head() const;  // null if the head has no weights

  // A block's parameters, fp32 [layout().numel()]. Errors as of models::load_block.
  at::Tensor read(const models::Block& block);

  // What `load` makes of what it reads. Its errors get the folder's name; kConfig if weights of the head are missing.
  template <typename Load>
  auto load(const Load& load) {
    auto weights = named(load);
    require_head();
    return weights;
  }

 private:
  template <typename Load>
  auto named(const Load& load) {
    try {
      return load();
    } catch (Error& error) {
      error.add_context("while loading " + from_.folder.string());
      throw;
    }
  }
  void require_head() const;

  EncoderSource from_;
  models::SequenceClassifier model_;
  std::optional<models::TokenHeadBlock> token_head_;
  tensors::CheckpointFiles files_;
  std::vector<std::string> initialized_;
};

// The place of the parameter `name`, "attention.qkv.weight" of layer.3 for example, in block.parameters(); their number
// if it has none of this name.
size_t find_parameter(const models::Block& block, const std::string& name);

// Error (kNumeric) if a parameter, in fp32, holds infinity or NaN: they may vanish in an activation, so that outputs
// would be numbers, and wrong.
void require_finite(const std::string& name, const at::Tensor& parameter);

}  // namespace strake::inference
