#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strake/tokenizers/vocabulary.h"
#include "strake/tokenizers/word_piece.h"

namespace strake::tokenizers {

struct BytePairOptions {
  std::optional<std::string> unk_token;  // for bytes that the vocabulary lacks; without it they disappear
  bool fuse_unk = false;                 // neighbouring unknown bytes become one token
  bool ignore_merges = false;            // a word that is a token stays whole
};

// Byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019): words are bytes, each written as one
// character of GPT-2's alphabet in the vocabulary. Merges happen in the order of their rank, leftmost first.
class BytePair {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;

  // Error (kConfig) for a merge whose parts or result are not in the vocabulary. Of equal merges the last one counts.
  BytePair(const Vocabulary& vocabulary, const Merges& merges, BytePairOptions options, const std::string& source);

  // Working memory of tokenize(), reused between calls; one per thread.
  struct Scratch;

  // Appends the tokens of a word given as raw bytes. begin and end count bytes of the word as written in the alphabet
  // (alphabet_length() per raw byte), as Hugging Face does. O(n log n).
  void tokenize(std::string_view word, Scratch& scratch, std::vector<ModelToken>& tokens) const;

 private:
  struct Merge {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = UINT32_MAX;
    int32_t id = -1;
  };
  struct Symbol {
    int32_t id;
    uint32_t length;
  };

  const Merge& find(int32_t left, int32_t right) const {
    const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    for (size_t slot = slot_of(pair);; slot = (slot + 1) & mask_) {
      const Merge& merge = merges_[slot];
      if (merge.pair == pair || merge.pair == UINT64_MAX) return merge;
    }
  }
  size_t slot_of(uint64_t pair) const {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    return static_cast<size_t>(((pair ^ pair >> 29) * kGoldenRatio) >> 32) & mask_;
  }
  void start(std::string_view word, std::vector<Symbol>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  BytePairOptions options_;
  const Vocabulary* vocabulary_;  // only for ignore_merges
  std::array<int32_t, 256> byte_ids_{};
  int32_t unk_id_ = -1;
  std::vector<Merge> merges_;  // open hash table
  size_t mask_ = 0;

 public:
  struct Scratch {
    struct Link {
      uint32_t previous, next;
    };
    struct Candidate {
      uint32_t rank, at;
      int32_t id;
    };
    std::vector<Symbol> symbols;
    std::vector<Merge> pairs;
    std::vector<Link> links;
    std::vector<Candidate> heap;
    std::string written;
  };
};

// Bytes that raw byte `byte` takes in GPT-2's alphabet: 1 or 2.
int alphabet_length(uint8_t byte);
// `bytes` written in GPT-2's alphabet.
void append_in_alphabet(std::string_view bytes, std::string& out);
// The byte that a character of the alphabet stands for.
std::optional<uint8_t> byte_of_alphabet(char32_t c);

}  // namespace strake::tokenizers
