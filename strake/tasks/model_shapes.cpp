#include "strake/tasks/model_shapes.h"

namespace strake::tasks {

monitor::EncoderShape shape_of(const models::EncoderConfig& config) {
  return {.num_layers = config.num_hidden_layers,
          .hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_labels = config.num_labels()};
}

monitor::DecoderShape shape_of(const models::Gpt2Config& config) {
  return {.num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .vocab_size = config.vocab_size};
}

}  // namespace strake::tasks
