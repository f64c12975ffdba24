#include "strake/tokenizers/word_piece.h"

#include "strake/core/error.h"
#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {

WordPiece::WordPiece(const Vocabulary& vocabulary, WordPieceOptions options, const std::string& source)
    : options_(std::move(options)) {
  const auto unk = vocabulary.find(options_.unk_token);
  require(unk.has_value(), ErrorKind::kConfig, "{}: the unknown token '{}' is not in the vocabulary of {} tokens",
          source, printable(options_.unk_token), vocabulary.size());
  unk_id_ = *unk;
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    const std::string* token = vocabulary.token(id);
    if (token != nullptr && !token->empty()) trie_.insert(*token, *vocabulary.find(*token));
  }
  continuation_ = trie_.walk(options_.continuing_subword_prefix);
}

void WordPiece::tokenize(std::string_view word, std::vector<ModelToken>& tokens) const {
  const size_t first_token = tokens.size();
  const auto word_end = static_cast<uint32_t>(word.size());
  const auto limit = static_cast<uint64_t>(options_.max_input_chars_per_word);
  bool known = word.size() <= limit || count_characters(word) <= limit;
  for (uint32_t start = 0; known && start < word_end;) {
    uint32_t node = start == 0 ? ByteTrie::kRoot : continuation_;
    ModelToken longest{-1, start, start};
    for (uint32_t at = start; at < word_end && node != ByteTrie::kNone;) {
      node = trie_.step(node, static_cast<uint8_t>(word[at++]));
      if (node != ByteTrie::kNone && trie_.value(node) >= 0) longest = {trie_.value(node), start, at};
    }
    known = longest.id >= 0;
    if (known) tokens.push_back(longest);
    start = longest.end;
  }
  if (known) return;
  tokens.resize(first_token);
  tokens.push_back({unk_id_, 0, word_end});
}

}  // namespace strake::tokenizers
