#pragma once

#include <cstdint>
#include <string>

#include "strake/data/token_dataset.h"
#include "strake/models/encoder/config.h"

namespace strake::rows {

// Error (kConfig) naming the file or the model for a token, the largest of some, that the model's vocabulary lacks.
void require_known_tokens(int64_t largest_id, int64_t vocab_size, const std::string& path);
void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path);
// The same for token types: a model with one has none for second texts.
void require_known_types(bool has_second_texts, const models::EncoderConfig& model, const std::string& path);

}  // namespace strake::rows
