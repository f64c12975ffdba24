// Scores the texts given on the command line: score_texts MODEL_FOLDER TEXT...
#include <exception>
#include <iostream>
#include <vector>

#include "strake/inference/engine.h"
#include "strake/tokenizers/fast_encoder.h"

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  constexpr int64_t kLongest = 64;
  strake::inference::Engine engine(argv[1], strake::inference::Precision::kFp32, {.longest_sequence = kLongest});
  strake::tokenizers::FastEncoder encoder(strake::tokenizers::Tokenizer::load(argv[1]));

  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  for (int i = 2; i < argc; ++i) {
    encoder.encode(argv[i], std::nullopt, kLongest, ids);
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  const auto num_labels = static_cast<size_t>(engine.config().num_labels());
  std::vector<float> logits((offsets.size() - 1) * num_labels);
  engine.score({.ids = ids, .offsets = offsets}, logits);

  for (size_t row = 0; row < logits.size(); row += num_labels) {
    for (size_t label = 0; label < num_labels; ++label) std::cout << logits[row + label] << ' ';
    std::cout << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
