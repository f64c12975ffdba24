#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace strake::inference {

// The classifier over each sequence's first token that the family has: num_labels numbers a sequence.
struct SequenceHead {};

enum class Pooling { kMean, kFirst };

// One vector of hidden_size numbers a sequence, from the last layer's output; a head in the folder is not read.
struct PooledHead {
  enum class Length { kAsItIs, kOne };

  Pooling pooling = Pooling::kMean;  // over all tokens of the sequence, special ones included
  Length length = Length::kAsItIs;   // kOne: divided by its Euclidean norm
};

// One linear layer over every token: `outputs` numbers a token.
struct TokenHead {
  std::string checkpoint_name;  // without .weight
  int64_t outputs = 0;
};

// What an engine computes behind the last layer.
using Head = std::variant<SequenceHead, PooledHead, TokenHead>;

// Whether it reads no more of the last layer's output than the first token of each sequence.
inline bool reads_first_tokens(const Head& head) {
  const auto* pooled = std::get_if<PooledHead>(&head);
  return pooled != nullptr ? pooled->pooling == Pooling::kFirst : std::holds_alternative<SequenceHead>(head);
}

}  // namespace strake::inference
