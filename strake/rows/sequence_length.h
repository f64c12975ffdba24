#pragma once

#include <cstdint>
#include <optional>

#include "strake/models/encoder/config.h"
#include "strake/models/gpt2/config.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

// --max_seq_length, of which more than the model has positions is an error (kUsage); or without it `by_default`, but no
// more than the model and the tokenizer allow.
int64_t choose_sequence_length(std::optional<int64_t> max_seq_length, int64_t by_default,
                               const models::EncoderConfig& model, const tokenizers::Tokenizer& tokenizer);

// --block_size, or without it (0) the default. Error (kUsage) if the model has fewer positions.
int64_t choose_block_size(int64_t block_size, const models::Gpt2Config& model);
// Tokens of a piece of text: as many as the model has positions, at most 1024.
int64_t default_block_size(int64_t positions);

}  // namespace strake::rows
