#pragma once

#include <bit>
#include <cstdint>

namespace strake::scoring {

inline constexpr int64_t kNumbersPerLoss = 2;

// How well a causal language model predicts a text: the mean negative log-likelihood of its predicted tokens, which are
// all of a piece but the first one.
struct TextLoss {
  float loss = 0;  // none of a text without predicted tokens
  int32_t predicted_tokens = 0;
};

// As kNumbersPerLoss numbers, and back.
inline void put_loss(const TextLoss& loss, float* numbers) {
  numbers[0] = loss.loss;
  numbers[1] = std::bit_cast<float>(loss.predicted_tokens);
}
inline TextLoss get_loss(const float* numbers) {
  return {.loss = numbers[0], .predicted_tokens = std::bit_cast<int32_t>(numbers[1])};
}

}  // namespace strake::scoring
