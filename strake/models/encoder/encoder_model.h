#pragma once

#include <string>
#include <string_view>

#include "strake/models/encoder/config.h"
#include "strake/models/encoder/layer.h"
#include "strake/models/model.h"

namespace strake::models {

// What models of encoders have in common, whatever their head.
class EncoderModel : public Model {
 public:
  const EncoderConfig& config() const { return config_; }

  double initializer_range() const override { return config_.initializer_range; }
  std::string checkpoint_prefix() const override { return family().names.prefix; }
  // Of old checkpoints: numbers of positions, and zeros for token types.
  bool is_buffer(std::string_view checkpoint_name) const override {
    return checkpoint_name.ends_with("embeddings.position_ids") ||
           checkpoint_name.ends_with("embeddings.token_type_ids");
  }

 protected:
  explicit EncoderModel(EncoderConfig config) : config_(std::move(config)) {}

  const EncoderFamily& family() const { return find_family(config_.model_type, "config.json"); }
  // Adds embeddings and layers, of which the last gives `output`. Returns the first dropout site for a head.
  // `word_copy`: as of EmbeddingsBlock.
  uint32_t add_encoder(EncoderLayerBlock::Output output, const std::string& word_copy = "");

 private:
  EncoderConfig config_;
};

}  // namespace strake::models
