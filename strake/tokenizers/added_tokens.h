#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "strake/tokenizers/byte_trie.h"
#include "strake/tokenizers/normalizer.h"
#include "strake/tokenizers/vocabulary.h"

namespace strake::tokenizers {

// A token that is found in the text itself, before the model sees it.
struct AddedToken {
  std::string content;
  bool single_word = false;  // only between characters that are not \w
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = true;    // looked for in its normalized form in normalized text
  bool special = false;      // skipped when decoding
};

// A part [begin, end) in bytes of a searched text; `id` is -1 between added tokens.
struct Section {
  size_t begin, end;
  int32_t id;
};

// One search for all tokens of a kind: leftmost first, then longest.
class TokenFinder {
 public:
  void add(std::string_view pattern, int32_t id, const AddedToken& token, const std::string& source);

  // Appends the sections of `text` in order, none of them empty. As in Hugging Face, the white space that a token takes
  // behind it (rstrip) may be a token itself, so that sections overlap. Error (kData) where such a token would end
  // before it begins, of which Hugging Face makes nothing either.
  void find(std::string_view text, std::vector<Section>& sections) const;
  // True if no byte of `text` can begin a token, which is the usual case: one quick scan.
  bool surely_absent(std::string_view text) const;

 private:
  struct Match {
    size_t end;
    int32_t id;
  };
  Match longest_at(std::string_view text, size_t at) const;
  bool is_refused(std::string_view text, size_t begin, const Match& match) const;

  ByteTrie trie_;
  std::map<int32_t, AddedToken> tokens_;
  std::string first_bytes_;  // the different first bytes of all patterns
  bool starts_[256] = {};
};

// All added tokens of a tokenizer.
class AddedTokens {
 public:
  // Adds a token as Hugging Face does: one whose content is known keeps its id, any other gets the next free one.
  // Returns the id. The model's vocabulary and the normalizers must not change afterwards.
  int32_t add(const AddedToken& token, const Vocabulary& model, const std::vector<Normalizer>& normalizers,
              const std::string& source);
  // Call once after the last add().
  void finish(const std::string& source);

  const TokenFinder& raw() const { return raw_; }                // not normalized: searched in the text as it is
  const TokenFinder& normalized() const { return normalized_; }  // searched in normalized text, in what raw() left

  const std::map<int32_t, AddedToken>& tokens() const { return by_id_; }
  std::optional<int32_t> find(std::string_view content) const;
  // As decoding shows it: the normalized form of a normalized token. Null if `id` is not an added token.
  const std::string* shown(int32_t id) const;
  bool is_special(std::string_view content) const { return specials_.contains(content); }

 private:
  int32_t new_id(const AddedToken& token, const Vocabulary& model, const std::string& source);

  std::optional<int64_t> next_id_;  // of a token that the model does not have
  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t, std::less<>> ids_;
  std::map<int32_t, std::string> normalized_form_;
  std::set<std::string, std::less<>> specials_;
  TokenFinder raw_, normalized_;
};

}  // namespace strake::tokenizers
