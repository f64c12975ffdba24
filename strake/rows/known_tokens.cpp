#include "strake/rows/known_tokens.h"

#include "strake/core/error.h"

namespace strake::rows {

void require_known_tokens(int64_t largest_id, int64_t vocab_size, const std::string& path) {
  require(largest_id < vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model", path,
          largest_id, vocab_size);
}

void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path) {
  require_known_tokens(dataset.max_token_id(), vocab_size, path);
}

void require_known_types(bool has_second_texts, const models::EncoderConfig& model, const std::string& path) {
  require(!has_second_texts || model.type_vocab_size != 1, ErrorKind::kConfig,
          "{}: the tokenizer gives the second of two texts token type 1, and the model has but one: type_vocab_size of "
          "its config.json is 1",
          path);
}

}  // namespace strake::rows
