#include "strake/rows/known_tokens.h"

#include "strake/core/error.h"

namespace strake::rows {

void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path) {
  require(dataset.max_token_id() < vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model", path,
          dataset.max_token_id(), vocab_size);
}

void require_known_types(const data::TokenDataset& dataset, const models::EncoderConfig& model,
                         const std::string& path) {
  require(!dataset.has_pairs() || model.type_vocab_size != 1, ErrorKind::kConfig,
          "{}: the tokenizer gives the second of two texts token type 1, and the model has but one: type_vocab_size of "
          "its config.json is 1",
          path);
}

}  // namespace strake::rows
