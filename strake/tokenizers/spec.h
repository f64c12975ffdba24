#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "strake/tokenizers/added_tokens.h"
#include "strake/tokenizers/byte_pair.h"
#include "strake/tokenizers/decoder.h"
#include "strake/tokenizers/encoding.h"
#include "strake/tokenizers/normalizer.h"
#include "strake/tokenizers/post_processor.h"
#include "strake/tokenizers/pre_tokenizer.h"
#include "strake/tokenizers/vocabulary.h"
#include "strake/tokenizers/word_piece.h"

namespace strake::tokenizers {

struct BytePairSpec {
  BytePairOptions options;
  BytePair::Merges merges;
};

// A tokenizer as its files describe it, before the search structures are built.
struct TokenizerSpec {
  std::string source;  // for error messages
  Vocabulary vocabulary;
  std::variant<WordPieceOptions, BytePairSpec> model;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  PostProcessor post_processor;
  Decoder decoder;
  bool cleans_up_spaces = false;  // of decoded texts, beyond what the decoder does
  std::vector<AddedToken> added_tokens;
  std::map<std::string, std::string> roles;  // "eos_token" and so on: of which content; decides no ids
  Direction truncation_side = Direction::kRight;
  Direction padding_side = Direction::kRight;  // Transformers' pipelines look at it; nothing is padded here
};

// Hex hash of everything in `spec` that decides ids. Two tokenizers with the same one give the same ids.
std::string fingerprint(const TokenizerSpec& spec);

}  // namespace strake::tokenizers
