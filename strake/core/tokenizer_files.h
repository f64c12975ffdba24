#pragma once

#include <array>

namespace strake {

// Files beside a model that a tokenizer is read from, by the names that Hugging Face gives them; and its template of
// chats, which goes where it goes.
inline constexpr std::array<const char*, 8> kTokenizerFiles{
    "tokenizer.json",          "vocab.txt",         "vocab.json",         "merges.txt", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};

}  // namespace strake
