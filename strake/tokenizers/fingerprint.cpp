#include <fmt/format.h>

#include <string_view>

#include "strake/tokenizers/spec.h"

namespace strake::tokenizers {
namespace {

// Two FNV-1a hashes with different starts. Strings are hashed with their length, so that no two lists look alike.
class Hasher {
 public:
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
  }
  void add(const char* text) { add(std::string_view(text)); }
  void add(int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(value >> shift));
  }
  std::string hex() const { return fmt::format("{:016x}{:016x}", first_, second_); }

 private:
  void add_byte(uint8_t byte) {
    constexpr uint64_t kPrime = 0x100000001B3;
    first_ = (first_ ^ byte) * kPrime;
    second_ = (second_ ^ byte) * kPrime;
    second_ ^= second_ >> 47;
  }
  uint64_t first_ = 0xCBF29CE484222325;
  uint64_t second_ = 0x9AE16A3B2F90404F;
};

template <typename... Values>
void add_all(Hasher& hash, const Values&... values) {
  (hash.add(values), ...);
}

void describe(Hasher& hash, const BertNormalizer& n) {
  add_all(hash, "BertNormalizer", n.clean_text, n.handle_chinese_chars, n.strip_accents, n.lowercase);
}
void describe(Hasher& hash, const Lowercase&) { hash.add("Lowercase"); }
void describe(Hasher& hash, const Nfd&) { hash.add("NFD"); }
void describe(Hasher& hash, const StripAccents&) { hash.add("StripAccents"); }
void describe(Hasher& hash, const Strip& n) { add_all(hash, "Strip", n.left, n.right); }

void describe(Hasher& hash, const BertPreTokenizer&) { hash.add("BertPreTokenizer"); }
void describe(Hasher& hash, const ByteLevelSplit& p) { add_all(hash, "ByteLevel", p.add_prefix_space, p.use_regex); }
void describe(Hasher& hash, const Gpt2Split&) { hash.add("Gpt2Split"); }
void describe(Hasher& hash, const WhitespaceSplit&) { hash.add("WhitespaceSplit"); }
void describe(Hasher& hash, const Whitespace&) { hash.add("Whitespace"); }
void describe(Hasher& hash, const Punctuation&) { hash.add("Punctuation"); }
void describe(Hasher& hash, const Digits& p) { add_all(hash, "Digits", p.individual); }

void describe(Hasher& hash, const WordPieceOptions& model) {
  add_all(hash, "WordPiece", model.unk_token, model.continuing_subword_prefix, model.max_input_chars_per_word);
}
void describe(Hasher& hash, const BytePairSpec& model) {
  const BytePairOptions& options = model.options;
  add_all(hash, "BPE", options.unk_token.has_value(), options.unk_token.value_or(""), options.fuse_unk,
          options.ignore_merges, static_cast<int64_t>(model.merges.size()));
  for (const auto& [left, right] : model.merges) add_all(hash, left, right);
}

void describe(Hasher& hash, const Template& parts) {
  hash.add(static_cast<int64_t>(parts.size()));
  for (const TemplatePart& part : parts) {
    add_all(hash, static_cast<int64_t>(part.kind), part.type_id, static_cast<int64_t>(part.ids.size()));
    for (const int32_t id : part.ids) hash.add(id);
  }
}

}  // namespace

std::string fingerprint(const TokenizerSpec& spec) {
  Hasher hash;
  const auto describe_one = [&hash](const auto& component) { describe(hash, component); };
  for (const Normalizer& normalizer : spec.normalizers) std::visit(describe_one, normalizer);
  for (const PreTokenizer& pre_tokenizer : spec.pre_tokenizers) std::visit(describe_one, pre_tokenizer);
  std::visit(describe_one, spec.model);
  for (int32_t id = 0; id < spec.vocabulary.id_limit(); ++id)
    if (const std::string* token = spec.vocabulary.token(id)) add_all(hash, id, *token);
  for (const AddedToken& token : spec.added_tokens)
    add_all(hash, token.content, token.single_word, token.lstrip, token.rstrip, token.normalized);
  describe(hash, spec.post_processor.single);
  describe(hash, spec.post_processor.pair);
  if (spec.truncation_side == Direction::kLeft) hash.add("left");
  return hash.hex();
}

}  // namespace strake::tokenizers
