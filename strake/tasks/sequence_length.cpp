#include "strake/tasks/sequence_length.h"

#include <algorithm>

#include "strake/core/error.h"

namespace strake::tasks {

int64_t choose_sequence_length(std::optional<int64_t> max_seq_length, int64_t by_default,
                               const models::EncoderConfig& model, const tokenizers::Tokenizer& tokenizer) {
  const int64_t positions = model.max_sequence_length();
  if (!max_seq_length) return std::min({by_default, positions, tokenizer.model_max_length().value_or(positions)});
  require(*max_seq_length <= positions, ErrorKind::kUsage, "--max_seq_length {} is more than the model's {} positions",
          *max_seq_length, positions);
  return *max_seq_length;
}

}  // namespace strake::tasks
