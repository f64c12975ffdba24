#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "strake/tokenizers/aligned_text.h"

// Pre-tokenizers of tokenizer.json. A new one is a struct, its name in tokenizer_json.cpp and a `split` in
// pre_tokenizer.cpp.
namespace strake::tokenizers {

// A part [begin, end) of PieceList::text: an added token, or text that is still to be split or tokenized.
struct Piece {
  size_t begin, end;
  int32_t added_id = -1;  // -1: not an added token
};

struct PieceList {
  AlignedText text;
  std::vector<Piece> pieces;
};

struct BertPreTokenizer {};  // at white space (dropped) and around each punctuation mark
struct ByteLevelSplit {      // GPT-2's; its byte alphabet is applied by the model
  bool add_prefix_space = true;
  bool use_regex = true;
};
struct Gpt2Split {};        // Split with GPT-2's regular expression
struct WhitespaceSplit {};  // at white space (dropped)
struct Whitespace {};       // \w+|[^\w\s]+
struct Punctuation {};      // around each punctuation mark
struct Digits {
  bool individual = false;
};

using PreTokenizer =
    std::variant<BertPreTokenizer, ByteLevelSplit, Gpt2Split, WhitespaceSplit, Whitespace, Punctuation, Digits>;

// Splits every piece that is not an added token; empty pieces disappear. `prefix_space`: as if ByteLevelSplit said so.
void pre_tokenize(const std::vector<PreTokenizer>& pre_tokenizers, bool prefix_space, PieceList& list);

// GPT-2's regular expression as it is written in tokenizer.json files.
inline constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace strake::tokenizers
