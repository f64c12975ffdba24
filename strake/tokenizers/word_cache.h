#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace strake::tokenizers {

// Remembers the token ids of short words. Two-way associative and of fixed size: new words displace old ones, so memory
// is bounded and look-up is one or two cache lines. Words are compared byte by byte: a hit is always right. Not
// thread-safe.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 24;
  static constexpr size_t kMostIds = 8;
  // A word's bytes must be readable up to this many bytes, whatever its length.
  static constexpr size_t kReadAhead = kLongestWord;

  struct Key {
    uint64_t parts[3];
    uint64_t hash;
    uint8_t length;
  };
  struct alignas(64) Entry {
    uint64_t parts[3] = {};
    int32_t ids[kMostIds] = {};
    uint8_t length = 0;  // 0: free
    uint8_t count = 0;
  };
  static_assert(sizeof(Entry) == 64);

  WordCache() : entries_(size_t{1} << kLog2Entries) {}

  // 1 <= length <= kLongestWord.
  static Key key(const char* word, size_t length) {
    Key key{};
    std::memcpy(key.parts, word, kLongestWord);
    for (size_t i = 0; i < 3; ++i) {  // clears the bytes behind the word
      const size_t kept = std::clamp<size_t>(length, 8 * i, 8 * i + 8) - 8 * i;
      key.parts[i] &= kept == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * kept)) - 1;
    }
    constexpr uint64_t kFirst = 0x9E3779B97F4A7C15, kSecond = 0xC2B2AE3D27D4EB4F, kThird = 0x165667B19E3779F9;
    key.hash = (key.parts[0] * kFirst) ^ std::rotl(key.parts[1] * kSecond, 31) ^ (key.parts[2] * kThird);
    key.hash = (key.hash ^ key.hash >> 32) * kFirst;
    key.length = static_cast<uint8_t>(length);
    return key;
  }

  // Starts loading the place of a word, to be called some words ahead of find().
  void prefetch(const Key& key) const {
    const Entry* pair = &entries_[first_of_pair(key)];
    __builtin_prefetch(pair);
    __builtin_prefetch(pair + 1);
  }

  // Null if the word is not known.
  const Entry* find(const Key& key) const {
    const Entry* pair = &entries_[first_of_pair(key)];
    if (holds(pair[0], key)) return pair;
    return holds(pair[1], key) ? pair + 1 : nullptr;
  }

  void insert(const Key& key, const int32_t* ids, size_t count) {
    if (count > kMostIds) return;
    Entry* pair = &entries_[first_of_pair(key)];
    pair[1] = pair[0];
    std::memcpy(pair[0].parts, key.parts, sizeof(key.parts));
    std::copy_n(ids, count, pair[0].ids);
    pair[0].length = key.length;
    pair[0].count = static_cast<uint8_t>(count);
  }

 private:
  static constexpr int kLog2Entries = 15;  // 2 MiB

  static size_t first_of_pair(const Key& key) {
    return static_cast<size_t>(key.hash >> (64 - kLog2Entries)) & ~size_t{1};
  }
  static bool holds(const Entry& entry, const Key& key) {
    const uint64_t difference = (entry.parts[0] ^ key.parts[0]) | (entry.parts[1] ^ key.parts[1]) |
                                (entry.parts[2] ^ key.parts[2]) | static_cast<uint64_t>(entry.length ^ key.length);
    return difference == 0;
  }

  std::vector<Entry> entries_;
};

}  // namespace strake::tokenizers
