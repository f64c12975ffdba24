#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "strake/tokenizers/unicode.h"
#include "strake/tokenizers/word_cache.h"

namespace strake::tokenizers {

// Text under construction that may be read a little beyond its end. Reused, so that the usual text allocates nothing.
class TextBuffer {
 public:
  void clear() { size_ = 0; }
  // Makes room for `bytes` more; pointers from data() end.
  void reserve_more(size_t bytes) {
    const size_t needed = size_ + bytes + WordCache::kReadAhead;
    if (needed > bytes_.size()) bytes_.resize(std::max(needed, bytes_.size() + bytes_.size() / 2));
  }
  // These need room made before.
  void push(char c) { bytes_[size_++] = c; }
  void push_if(char c, bool wanted) {
    bytes_[size_] = c;
    size_ += wanted;
  }
  void append(std::string_view text) {
    reserve_more(text.size());
    if (!text.empty()) std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  void append_char(char32_t c) {
    if (c < 0x80) return push(static_cast<char>(c));
    const int tails = utf8_length(c) - 1;
    constexpr uint8_t kLeads[] = {0, 0xC0, 0xE0, 0xF0};
    push(static_cast<char>(kLeads[tails] | c >> (6 * tails)));
    for (int i = tails - 1; i >= 0; --i) push(static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F)));
  }

  const char* data() const { return bytes_.data(); }
  size_t size() const { return size_; }
  std::string_view view() const { return {bytes_.data(), size_}; }

 private:
  std::vector<char> bytes_ = std::vector<char>(1024);
  size_t size_ = 0;
};

}  // namespace strake::tokenizers
