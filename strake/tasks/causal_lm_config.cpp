#include "strake/tasks/causal_lm_config.h"

#include <algorithm>

#include "strake/core/error.h"
#include "strake/tasks/new_model_config.h"

namespace strake::tasks {
namespace {

// Transformers' GPT2Config(), as far as it says how to compute.
const Json& gpt2_defaults() {
  static const Json kDefaults{{"model_type", "gpt2"},
                              {"vocab_size", 50257},
                              {"n_positions", 1024},
                              {"n_embd", 768},
                              {"n_layer", 12},
                              {"n_head", 12},
                              {"n_inner", nullptr},
                              {"activation_function", "gelu_new"},
                              {"resid_pdrop", 0.1},
                              {"embd_pdrop", 0.1},
                              {"attn_pdrop", 0.1},
                              {"layer_norm_epsilon", 1e-5},
                              {"initializer_range", 0.02},
                              {"scale_attn_weights", true},
                              {"tie_word_embeddings", true},
                              {"bos_token_id", 50256},
                              {"eos_token_id", 50256}};
  return kDefaults;
}

}  // namespace

models::Gpt2Config read_causal_lm_config(const TrainConfig& config) {
  if (!config.model_name_or_path.empty()) return models::read_gpt2_config(config.model_name_or_path);
  const NewModelConfig model = new_model_config(config, gpt2_defaults());
  return models::parse_gpt2_config(model.document, model.source);
}

}  // namespace strake::tasks
