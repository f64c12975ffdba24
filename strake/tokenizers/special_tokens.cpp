#include "strake/tokenizers/special_tokens.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "strake/core/error.h"

namespace strake::tokenizers {
namespace {

// The roles of special tokens, in the order in which transformers adds them.
constexpr std::array kSpecialNames{"bos_token", "eos_token", "unk_token", "sep_token",
                                   "pad_token", "cls_token", "mask_token"};

// A token given as a string or as an object; special tokens that are not said to be normalized are not.
AddedToken to_token(const Json& json, bool special, const std::string& source) {
  if (json.is_string()) return {.content = json.get<std::string>(), .normalized = !special, .special = special};
  require(json.is_object(), ErrorKind::kConfig, "{}: {} is not a token", source, printable(json.dump()));
  special = special || get_or(json, "special", false, source);
  return {.content = get_required<std::string>(json, "content", source),
          .single_word = get_or(json, "single_word", false, source),
          .lstrip = get_or(json, "lstrip", false, source),
          .rstrip = get_or(json, "rstrip", false, source),
          .normalized = get_or(json, "normalized", !special, source),
          .special = special};
}

bool is_listed(const Json& config) { return config.contains("added_tokens_decoder"); }

}  // namespace

SpecialTokens::SpecialTokens(const SpecialTokenFiles& files, const Vocabulary& vocabulary,
                             std::vector<AddedToken> from_tokenizer_json, std::span<const SpecialDefault> defaults)
    : source_(files.source) {
  for (const SpecialDefault& role : defaults) roles_[role.name] = to_token(role.content, true, source_);
  read(files);
  if (!is_listed(files.tokenizer_config)) {
    for (AddedToken& token : from_tokenizer_json) add(std::move(token));
  }
  add_roles();
  read_others(files, vocabulary);
}

std::map<std::string, std::string> SpecialTokens::contents() const {
  std::map<std::string, std::string> contents;
  for (const auto& [role, token] : roles_) contents[role] = token.content;
  return contents;
}

SpecialTokens SpecialTokens::beside(const SpecialTokenFiles& files, const Vocabulary& vocabulary,
                                    std::vector<AddedToken> from_tokenizer_json) {
  SpecialTokens own(files.source);
  own.read(files);
  own.add_roles();
  const std::vector<AddedToken> more = std::exchange(own.tokens_, std::move(from_tokenizer_json));
  own.known_.clear();
  for (const AddedToken& token : own.tokens_) own.known_.insert(token.content);
  for (const AddedToken& token : more) own.add_if_new(token);
  own.read_others(files, vocabulary);
  return own;
}

void SpecialTokens::read(const SpecialTokenFiles& files) {
  read_roles(files.tokenizer_config);
  if (is_listed(files.tokenizer_config)) {
    read_added_tokens_decoder(files.tokenizer_config.at("added_tokens_decoder"));
  } else {
    read_roles(files.special_tokens_map);
    read_added_tokens(files.added_tokens);
  }
}

const std::string& SpecialTokens::content(const char* role) const {
  const auto found = roles_.find(role);
  require(found != roles_.end(), ErrorKind::kConfig, "{}: {} is null, and this kind of tokenizer needs it", source_,
          role);
  return found->second.content;
}

void SpecialTokens::read_roles(const Json& config) {
  for (const char* name : kSpecialNames) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_null()) {
      roles_.erase(name);
    } else {
      roles_[name] = to_token(*found, true, source_);
    }
  }
}

void SpecialTokens::read_added_tokens_decoder(const Json& decoder) {
  require(decoder.is_object(), ErrorKind::kConfig, "{}: added_tokens_decoder must be an object", source_);
  std::map<int64_t, AddedToken> by_id;
  for (const auto& [id, token] : decoder.items()) {
    const bool is_number =
        !id.empty() && id.size() <= 9 && std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; });
    require(is_number, ErrorKind::kConfig, "{}: added_tokens_decoder: '{}' is not an id", source_, printable(id));
    by_id[std::stoll(id)] = to_token(token, false, source_);
  }
  for (auto& [id, token] : by_id) add(std::move(token));
}

void SpecialTokens::read_added_tokens(const Json& added) {
  std::map<int64_t, AddedToken> by_id;
  for (const auto& [content, id] : added.items()) {
    require(id.is_number_integer(), ErrorKind::kConfig, "added_tokens.json: id {} of '{}' is not an integer",
            printable(id.dump()), printable(content));
    const auto has_content = [&content = content](const auto& role) { return role.second.content == content; };
    const bool special = std::ranges::any_of(roles_, has_content);
    by_id[id.get<int64_t>()] = {.content = content, .normalized = !special, .special = special};
  }
  for (auto& [id, token] : by_id) add(std::move(token));
}

// Tokens in lists, and those that have roles of a model's own ("image_token"), which may stand in objects. The order in
// which objects name them is not known any more: it decides ids if there are several new ones.
void SpecialTokens::read_others(const SpecialTokenFiles& files, const Vocabulary& vocabulary) {
  std::vector<const Json*> configs{&files.tokenizer_config};
  if (!is_listed(files.tokenizer_config)) configs.push_back(&files.special_tokens_map);
  std::vector<std::string> unordered;
  const auto add_role = [&](const std::string& name, const Json& json) {
    const bool is_role = name.ends_with("_token") && (json.is_string() || json.is_object());
    if (!is_role || std::ranges::find(kSpecialNames, name) != kSpecialNames.end()) return;
    const AddedToken token = to_token(json, true, source_);
    if (add_if_new(token) && !vocabulary.find(token.content)) unordered.push_back(token.content);
  };
  for (const Json* config : configs) {
    for (const char* key : {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
      const auto found = config->find(key);
      if (found == config->end()) continue;
      for (const auto& [name, token] : found->items()) {
        if (found->is_object()) add_role(name, token);
        if (found->is_array()) add_if_new(to_token(token, true, source_));
      }
    }
    for (const auto& [name, token] : config->items()) add_role(name, token);
  }
  if (unordered.size() > 1) {
    fail(ErrorKind::kConfig,
         "{}: '{}' and '{}' are new special tokens in no order that strake could know: save the tokenizer once with "
         "transformers, which lists them in tokenizer.json",
         source_, printable(unordered[0]), printable(unordered[1]));
  }
}

void SpecialTokens::add(AddedToken token) {
  const auto has_content = [&token](const auto& role) { return role.second.content == token.content; };
  if (std::ranges::any_of(roles_, has_content)) token.special = true;
  known_.insert(token.content);
  tokens_.push_back(std::move(token));
}

void SpecialTokens::add_roles() {
  for (const char* name : kSpecialNames) {
    const auto role = roles_.find(name);
    if (role != roles_.end()) add_if_new(role->second);
  }
}

bool SpecialTokens::add_if_new(const AddedToken& token) {
  if (!known_.insert(token.content).second) return false;
  tokens_.push_back(token);
  return true;
}

}  // namespace strake::tokenizers
