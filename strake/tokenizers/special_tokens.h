#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/tokenizers/added_tokens.h"
#include "strake/tokenizers/vocabulary.h"

namespace strake::tokenizers {

// A role of tokenizer_config.json, such as "cls_token", and the token that has it if the file does not say.
struct SpecialDefault {
  const char* name;
  const char* content;
};

// What a folder says of special and added tokens; each an object, empty where there is no such file.
struct SpecialTokenFiles {
  const Json& tokenizer_config;
  const Json& special_tokens_map;
  const Json& added_tokens;
  std::string source;  // of tokenizer_config
};

// The added tokens of a folder and the roles of the special ones, as PreTrainedTokenizerBase._from_pretrained of
// transformers finds them.
class SpecialTokens {
 public:
  // Of a tokenizer class that says everything but the vocabulary. `from_tokenizer_json` may be empty.
  SpecialTokens(const SpecialTokenFiles& files, const Vocabulary& vocabulary,
                std::vector<AddedToken> from_tokenizer_json, std::span<const SpecialDefault> defaults);

  // Those that the files add to a tokenizer.json which is taken as it is written.
  static SpecialTokens beside(const SpecialTokenFiles& files, const Vocabulary& vocabulary,
                              std::vector<AddedToken> from_tokenizer_json);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Error (kConfig) if nothing has the role.
  const std::string& content(const char* role) const;
  // By role, such as "eos_token".
  std::map<std::string, std::string> contents() const;

 private:
  explicit SpecialTokens(std::string source) : source_(std::move(source)) {}

  // Roles, and tokens that are not of tokenizer.json.
  void read(const SpecialTokenFiles& files);
  void read_roles(const Json& config);
  void read_added_tokens_decoder(const Json& decoder);
  void read_added_tokens(const Json& added);
  void read_others(const SpecialTokenFiles& files, const Vocabulary& vocabulary);
  void add(AddedToken token);
  void add_roles();
  bool add_if_new(const AddedToken& token);

  std::string source_;
  std::map<std::string, AddedToken> roles_;
  std::vector<AddedToken> tokens_;
  std::set<std::string> known_;  // their contents
};

}  // namespace strake::tokenizers
