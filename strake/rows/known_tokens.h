#pragma once

#include <cstdint>
#include <string>

#include "strake/data/token_dataset.h"
#include "strake/models/encoder/config.h"

namespace strake::rows {

// Error (kConfig) naming the file for a token that the model's vocabulary lacks.
void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path);
// The same for token types: a model with one has none for second texts.
void require_known_types(const data::TokenDataset& dataset, const models::EncoderConfig& model,
                         const std::string& path);

}  // namespace strake::rows
