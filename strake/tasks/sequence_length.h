#pragma once

#include <cstdint>
#include <optional>

#include "strake/models/encoder/config.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

// --max_seq_length, of which more than the model has positions is an error (kUsage); or without it `by_default`, but no
// more than the model and the tokenizer allow.
int64_t choose_sequence_length(std::optional<int64_t> max_seq_length, int64_t by_default,
                               const models::EncoderConfig& model, const tokenizers::Tokenizer& tokenizer);

}  // namespace strake::tasks
