#include "strake/tokenizers/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "strake/core/error.h"
#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

constexpr size_t kLongestToken = 512;  // bytes: a search takes as long as the text times the longest token

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = previous_character(text, text.size());
  return char_class(next_char(text, at)) & kWord;
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && (char_class(next_char(text, at)) & kWord);
}

size_t leading_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size() && (char_class(next_char(text, at)) & kSpace);) end = at;
  return end;
}

}  // namespace

void TokenFinder::add(std::string_view pattern, int32_t id, const AddedToken& token, const std::string& source) {
  require(!pattern.empty(), ErrorKind::kConfig, "{}: added token '{}' is empty after normalization", source,
          printable(token.content));
  const uint32_t node = trie_.walk(pattern);
  require(node == ByteTrie::kNone || trie_.value(node) < 0, ErrorKind::kConfig,
          "{}: added token '{}' is equal to another one after normalization", source, printable(token.content));
  trie_.insert(pattern, id);
  tokens_.emplace(id, token);
  bool& starts = starts_[static_cast<uint8_t>(pattern[0])];
  if (!starts) first_bytes_ += pattern[0];
  starts = true;
}

bool TokenFinder::surely_absent(std::string_view text) const {
  if (text.empty() || first_bytes_.empty()) return true;
  if (first_bytes_.size() == 1) return std::memchr(text.data(), first_bytes_[0], text.size()) == nullptr;
  return std::ranges::none_of(text, [this](char c) { return starts_[static_cast<uint8_t>(c)]; });
}

TokenFinder::Match TokenFinder::longest_at(std::string_view text, size_t at) const {
  Match longest{at, -1};
  uint32_t node = ByteTrie::kRoot;
  while (at < text.size()) {
    node = trie_.step(node, static_cast<uint8_t>(text[at++]));
    if (node == ByteTrie::kNone) break;
    if (trie_.value(node) >= 0) longest = {at, trie_.value(node)};
  }
  return longest;
}

// A refused match is skipped whole: no shorter token and none inside it is tried (as in Hugging Face).
bool TokenFinder::is_refused(std::string_view text, size_t begin, const Match& match) const {
  return tokens_.at(match.id).single_word &&
         (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(match.end)));
}

void TokenFinder::find(std::string_view text, std::vector<Section>& sections) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = longest_at(text, at);
    if (match.id < 0) {
      ++at;
      continue;
    }
    const size_t matched = at;
    at = match.end;
    if (is_refused(text, matched, match)) continue;
    const AddedToken& token = tokens_.at(match.id);
    size_t begin = matched, end = match.end;
    if (token.lstrip) {
      while (begin > done) {
        size_t previous = previous_character(text, begin);
        const size_t start = previous;
        if (!(char_class(next_char(text, previous)) & kSpace)) break;
        begin = start;
      }
      begin = std::max(begin, done);
    }
    if (token.rstrip) end += leading_space(text.substr(end));
    require(begin <= end, ErrorKind::kData,
            "added token '{}' at byte {} lies in white space that another one takes, and takes what is before it, too",
            printable(token.content), matched);
    if (done < begin) sections.push_back({done, begin, -1});
    if (begin < end) sections.push_back({begin, end, match.id});
    done = end;
  }
  if (done < text.size()) sections.push_back({done, text.size(), -1});
}

int32_t AddedTokens::new_id(const AddedToken& token, const Vocabulary& model, const std::string& source) {
  const int64_t id = next_id_.value_or(static_cast<int64_t>(model.size()));
  require(id <= kMaxTokenId, ErrorKind::kConfig, "{}: no id is left for added token '{}'", source,
          printable(token.content));
  const auto next = static_cast<int32_t>(id);
  const std::string* taken = shown(next);
  if (taken == nullptr) taken = model.token(next);
  require(taken == nullptr, ErrorKind::kConfig,
          "{}: added token '{}' would get id {}, which '{}' has: the vocabulary has fewer tokens than its ids go up to",
          source, printable(token.content), next, taken == nullptr ? "" : printable(*taken));
  next_id_ = id + 1;
  return next;
}

int32_t AddedTokens::add(const AddedToken& token, const Vocabulary& model, const std::vector<Normalizer>& normalizers,
                         const std::string& source) {
  require(token.content.size() <= kLongestToken, ErrorKind::kConfig,
          "{}: added token '{}' has {} bytes; at most {} are looked for", source, printable(token.content),
          token.content.size(), kLongestToken);
  auto id = find(token.content);
  if (!id) id = model.find(token.content);
  if (!id) id = new_id(token, model, source);
  if (token.normalized) {
    AlignedText text = align(token.content, 0);
    normalize(normalizers, text);
    std::string form = to_utf8(text);
    if (form != token.content) normalized_form_.insert_or_assign(*id, std::move(form));
  }
  ids_.insert_or_assign(token.content, *id);
  by_id_.insert_or_assign(*id, token);
  if (token.special) specials_.insert(token.content);
  return *id;
}

void AddedTokens::finish(const std::string& source) {
  for (const auto& [id, token] : by_id_) {
    if (token.normalized) {
      normalized_.add(*shown(id), id, token, source);
    } else {
      raw_.add(token.content, id, token, source);
    }
  }
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(content);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* AddedTokens::shown(int32_t id) const {
  if (const auto form = normalized_form_.find(id); form != normalized_form_.end()) return &form->second;
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second.content;
}

}  // namespace strake::tokenizers
