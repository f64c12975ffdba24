#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strake/tokenizers/byte_trie.h"
#include "strake/tokenizers/vocabulary.h"

namespace strake::tokenizers {

// A token and the bytes [begin, end) of the word that it covers.
struct ModelToken {
  int32_t id;
  uint32_t begin, end;
};

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  int64_t max_input_chars_per_word = 100;
};

// Greedy longest match from the left (Schuster and Nakajima 2012; Devlin et al. 2018). A word with a part that matches
// nothing, or with too many characters, is one unknown token. Time is at most length times longest token.
class WordPiece {
 public:
  // Error (kConfig) if the unknown token is not in the vocabulary.
  WordPiece(const Vocabulary& vocabulary, WordPieceOptions options, const std::string& source);

  // Appends the tokens of a word of valid UTF-8.
  void tokenize(std::string_view word, std::vector<ModelToken>& tokens) const;

 private:
  WordPieceOptions options_;
  int32_t unk_id_ = 0;
  ByteTrie trie_;
  uint32_t continuation_ = ByteTrie::kNone;  // the node behind the prefix
};

}  // namespace strake::tokenizers
