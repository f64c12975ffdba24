#include "strake/tokenizers/byte_pair.h"

#include <algorithm>
#include <bit>

#include "strake/core/error.h"
#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

// Printable Latin-1 bytes stand for themselves; the other 68 for U+0100 and following (GPT-2's bytes_to_unicode).
bool is_printable_byte(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  Alphabet() {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      chars[byte] = is_printable_byte(byte) ? byte : next++;
      bytes[chars[byte]] = static_cast<int16_t>(byte);
    }
  }
  static constexpr char32_t kEnd = 0x100 + 68;
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kEnd> bytes = [] {
    std::array<int16_t, kEnd> none;
    none.fill(-1);
    return none;
  }();
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

int alphabet_length(uint8_t byte) { return byte >= 0x21 && byte <= 0x7E ? 1 : 2; }

void append_in_alphabet(std::string_view bytes, std::string& out) {
  for (const char c : bytes) append_utf8(alphabet().chars[static_cast<uint8_t>(c)], out);
}

std::optional<uint8_t> byte_of_alphabet(char32_t c) {
  if (c >= Alphabet::kEnd || alphabet().bytes[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(alphabet().bytes[c]);
}

BytePair::BytePair(const Vocabulary& vocabulary, const Merges& merges, BytePairOptions options,
                   const std::string& source)
    : options_(std::move(options)), vocabulary_(&vocabulary) {
  if (options_.unk_token) {
    const auto unk = vocabulary.find(*options_.unk_token);
    require(unk.has_value(), ErrorKind::kConfig, "{}: the unknown token '{}' is not in the vocabulary of {} tokens",
            source, printable(*options_.unk_token), vocabulary.size());
    unk_id_ = *unk;
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string written;
    append_utf8(alphabet().chars[byte], written);
    byte_ids_[byte] = vocabulary.find(written).value_or(-1);
  }
  merges_.resize(std::bit_ceil(std::max<size_t>(2 * merges.size(), 16)));
  mask_ = merges_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto id_of = [&](const std::string& token) {
      const auto id = vocabulary.find(token);
      if (!id) {
        fail(ErrorKind::kConfig, "{}: merge {} ('{}' '{}') needs token '{}', which the vocabulary lacks", source, rank,
             printable(left), printable(right), printable(token));
      }
      return *id;
    };
    const uint64_t pair = uint64_t{static_cast<uint32_t>(id_of(left))} << 32 | static_cast<uint32_t>(id_of(right));
    size_t slot = slot_of(pair);
    while (merges_[slot].pair != UINT64_MAX && merges_[slot].pair != pair) slot = (slot + 1) & mask_;
    merges_[slot] = {pair, static_cast<uint32_t>(rank), id_of(left + right)};
  }
}

void BytePair::start(std::string_view word, std::vector<Symbol>& symbols) const {
  symbols.clear();
  symbols.reserve(word.size());
  bool after_unknown = false;
  for (const char c : word) {
    const auto byte = static_cast<uint8_t>(c);
    const auto length = static_cast<uint32_t>(alphabet_length(byte));
    const int32_t id = byte_ids_[byte];
    if (id >= 0) {
      symbols.push_back({id, length});
    } else if (unk_id_ >= 0) {
      if (after_unknown && options_.fuse_unk) {
        symbols.back().length += length;
      } else {
        symbols.push_back({unk_id_, length});
      }
    }
    after_unknown = id < 0;
  }
}

// Scans all pairs for the best one after every merge: quadratic, and the fastest way for the usual word.
void BytePair::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& pairs = scratch.pairs;  // pairs[i] is that of symbols i and i + 1
  size_t count = symbols.size();
  pairs.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = find(symbols[i].id, symbols[i + 1].id);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == UINT32_MAX) break;
    symbols[best] = {pairs[best].id, symbols[best].length + symbols[best + 1].length};
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(count),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pairs.begin() + static_cast<ptrdiff_t>(best) + 2, pairs.begin() + static_cast<ptrdiff_t>(count),
              pairs.begin() + static_cast<ptrdiff_t>(best) + 1);
    --count;
    if (best > 0) pairs[best - 1] = find(symbols[best - 1].id, symbols[best].id);
    if (best + 1 < count) pairs[best] = find(symbols[best].id, symbols[best + 1].id);
  }
  symbols.resize(count);
}

// A heap of candidate merges over a linked list. A merged-away symbol has length 0; a candidate is stale if the pair at
// its place has changed since.
void BytePair::merge_long(Scratch& scratch) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  auto& [symbols, pairs, links, heap, written] = scratch;
  const auto count = static_cast<uint32_t>(symbols.size());
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  links.resize(count);
  heap.clear();
  heap.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    links[i] = {i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
    if (i + 1 == count) continue;
    const Merge& merge = find(symbols[i].id, symbols[i + 1].id);
    if (merge.id >= 0) heap.push_back({merge.rank, i, merge.id});
  }
  std::ranges::make_heap(heap, later);
  const auto offer = [&](uint32_t at) {
    const Merge& merge = find(symbols[at].id, symbols[links[at].next].id);
    if (merge.id < 0) return;
    heap.push_back({merge.rank, at, merge.id});
    std::ranges::push_heap(heap, later);
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    const uint32_t right = links[top.at].next;
    if (symbols[top.at].length == 0 || right == kEnd) continue;
    if (find(symbols[top.at].id, symbols[right].id).id != top.id) continue;
    symbols[top.at] = {top.id, symbols[top.at].length + symbols[right].length};
    symbols[right].length = 0;
    links[top.at].next = links[right].next;
    if (links[right].next != kEnd) links[links[right].next].previous = top.at;
    if (links[top.at].previous != kEnd) offer(links[top.at].previous);
    if (links[top.at].next != kEnd) offer(top.at);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

void BytePair::tokenize(std::string_view word, Scratch& scratch, std::vector<ModelToken>& tokens) const {
  if (options_.ignore_merges) {
    scratch.written.clear();
    append_in_alphabet(word, scratch.written);
    if (const auto id = vocabulary_->find(scratch.written)) {
      tokens.push_back({*id, 0, static_cast<uint32_t>(scratch.written.size())});
      return;
    }
  }
  constexpr size_t kShort = 48;
  start(word, scratch.symbols);
  if (scratch.symbols.size() <= kShort) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  uint32_t at = 0;
  for (const Symbol& symbol : scratch.symbols) {
    tokens.push_back({symbol.id, at, at + symbol.length});
    at += symbol.length;
  }
}

}  // namespace strake::tokenizers
