#include "strake/rows/sequence_length.h"

#include <algorithm>

#include "strake/core/error.h"

namespace strake::rows {

int64_t choose_sequence_length(std::optional<int64_t> max_seq_length, int64_t by_default,
                               const models::EncoderConfig& model, const tokenizers::Tokenizer& tokenizer) {
  const int64_t positions = model.max_sequence_length();
  if (!max_seq_length) return std::min({by_default, positions, tokenizer.model_max_length().value_or(positions)});
  require(*max_seq_length <= positions, ErrorKind::kUsage, "--max_seq_length {} is more than the model's {} positions",
          *max_seq_length, positions);
  return *max_seq_length;
}

int64_t choose_block_size(int64_t block_size, const models::Gpt2Config& model) {
  require(block_size <= model.max_positions, ErrorKind::kUsage, "--block_size {} is more than the model's {} positions",
          block_size, model.max_positions);
  return block_size > 0 ? block_size : default_block_size(model.max_positions);
}

int64_t default_block_size(int64_t positions) { return std::min<int64_t>(positions, 1024); }

}  // namespace strake::rows
