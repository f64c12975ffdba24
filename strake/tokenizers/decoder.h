#pragma once

#include <string>
#include <variant>
#include <vector>

namespace strake::tokenizers {

struct NoDecoder {};  // tokens joined by spaces
struct WordPieceDecoder {
  std::string prefix = "##";
  bool cleanup = true;  // "a ." becomes "a.", " n't" becomes "n't", ...
};
struct ByteLevelDecoder {};

using Decoder = std::variant<NoDecoder, WordPieceDecoder, ByteLevelDecoder>;

// The text of a list of tokens. Valid UTF-8: bytes that are none become U+FFFD.
std::string decode(const Decoder& decoder, const std::vector<std::string>& tokens);

// What transformers makes of a decoded text where clean_up_tokenization_spaces is set: "it ' s ." becomes "it's.".
std::string clean_up_spaces(std::string text);

}  // namespace strake::tokenizers
