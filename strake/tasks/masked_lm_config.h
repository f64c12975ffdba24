#pragma once

#include "strake/models/encoder/config.h"
#include "strake/models/encoder/token_masking.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// The encoder that --model_name_or_path, or --model_type or --config_name with --config_overrides, stand for. A new one
// gets the ids of the tokenizer's special tokens; none is known to `strake estimate`.
models::EncoderConfig read_masked_lm_config(const TrainConfig& config, const tokenizers::Tokenizer* tokenizer);

// Errors (kUsage) naming --mlm_probability if it is not in (0, 1], and --max_seq_length if it leaves no token to mask.
void require_mlm_probability(double probability);
void require_masked_piece(int64_t max_seq_length);

// How a tokenizer's texts are masked. Error (kConfig) if it has no mask token, or the model none of that id.
models::TokenMasking masking_of(double probability, const tokenizers::Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace strake::tasks
