#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strake/core/json.h"
#include "strake/tokenizers/encoding.h"
#include "strake/tokenizers/spec.h"
#include "strake/tokenizers/text_cutter.h"

namespace strake::tokenizers {

struct EncodeOptions {
  bool add_special_tokens = true;
  std::optional<Truncation> truncation = std::nullopt;
  std::optional<Padding> padding = std::nullopt;
  // False: only the first window of what is truncated is wanted. Of a single text that is truncated from the right the
  // rest is not looked at.
  bool overflow = true;
  // As if a byte-level tokenizer had add_prefix_space: of words that are tokenized each on its own.
  bool prefix_space = false;
};

struct DecodeOptions {
  bool skip_special_tokens = true;
};

// Text to token ids and back, with the same results as Hugging Face's tokenizers 0.23. Immutable: one object serves any
// number of threads. This class is exact and complete; for many texts of which only the ids are wanted see FastEncoder.
class Tokenizer {
 public:
  // `path`: a folder as saved by save_pretrained, a tokenizer.json or a vocab.txt. A folder behaves as transformers'
  // AutoTokenizer makes it behave for BERT, DistilBERT, RoBERTa and GPT-2; a single tokenizer.json as it is written; a
  // single vocab.txt as a BERT tokenizer that lowercases. Errors: kIo (no such file), kConfig (content).
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);

  // From a description; `files` (name, content) is what save() writes.
  Tokenizer(TokenizerSpec spec, std::map<std::string, std::string> files, std::optional<int64_t> model_max_length);
  Tokenizer(const Tokenizer&) = delete;  // the model points into spec_
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Text must be valid UTF-8 of less than 2^31 bytes: Error (kData) naming the first bad byte otherwise.
  // Error (kConfig) if truncation leaves no room for special tokens or is not longer than the stride.
  Encoding encode(std::string_view text, std::optional<std::string_view> pair = std::nullopt,
                  const EncodeOptions& options = {}) const;

  // The encoding of a pair and its further windows, as encode() gives them with TruncationStrategy::kOnlySecond, one
  // after the other: of a long second text most of the memory is for them. The same errors.
  void encode_windows(std::string_view text, std::string_view pair, const Truncation& truncation,
                      const std::function<void(const Encoding&)>& sink) const;

  // Ids that are not in the vocabulary are left out.
  std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  int64_t vocab_size() const;  // different tokens, with added ones
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // Of the special token that has this role, such as "eos_token", in a folder's files or by its class; none: nothing
  // has.
  std::optional<int32_t> id_of_role(const std::string& role) const;
  // Empty if no token has this id. Added tokens that are normalized are shown in their normalized form.
  std::string_view id_to_token(int32_t id) const;
  std::optional<int64_t> model_max_length() const { return model_max_length_; }  // from tokenizer_config.json
  std::string fingerprint() const { return fingerprint_; }                       // hex; equal if ids are always equal

  // Writes byte-identical copies of the files this tokenizer was loaded from, each atomically; for a bare vocab.txt
  // also a tokenizer_config.json, so that AutoTokenizer can load the folder. Creates the directory; removes
  // what another tokenizer has left there, which would be read too.
  // `settings` take the place of those of tokenizer_config.json, or stand there beside them.
  void save(const std::filesystem::path& directory, const Json& settings = Json::object()) const;

  // For FastEncoder; the merges of the specification are no longer there.
  const TokenizerSpec& spec() const { return spec_; }
  const AddedTokens& added_tokens() const { return added_; }
  const TextCutter& cutter() const { return cutter_; }
  const WordPiece* word_piece() const { return std::get_if<WordPiece>(&model_); }
  const BytePair* byte_pair() const { return std::get_if<BytePair>(&model_); }

 private:
  struct Progress;
  struct Part {
    int32_t index = 0;  // 0 or 1 of a pair
    int64_t limit = 0;  // of tokens that are wanted
    bool prefix_space = false;
  };
  Encoding encode_one(std::string_view text, const Part& part) const;
  // Of text without added tokens of those that are found in raw text; its first character is number `first_char`.
  void encode_part(std::string_view part, int32_t first_char, Progress& progress) const;
  void push_added(std::span<const AlignedChar> token, int32_t id, Progress& progress) const;
  void tokenize_piece(std::span<const AlignedChar> piece, Progress& progress) const;

  TokenizerSpec spec_;
  std::variant<std::monostate, WordPiece, BytePair> model_;
  AddedTokens added_;
  TextCutter cutter_;
  std::map<std::string, std::string> files_;
  std::optional<int64_t> model_max_length_;
  std::string fingerprint_;
};

// Error (kData) naming the byte, unless `text` is valid UTF-8 of less than 2^31 bytes.
void check_text(std::string_view text);

// `truncation` with max_length reduced by the `added` special tokens. Error (kConfig) if the lengths are not possible.
Truncation without_special_tokens(const Truncation& truncation, int64_t added);

}  // namespace strake::tokenizers
