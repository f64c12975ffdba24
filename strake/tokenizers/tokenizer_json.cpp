#include "strake/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "strake/core/json.h"

namespace strake::tokenizers {
namespace {

using Special = std::pair<std::string, int32_t>;

// A JSON object together with where it stands, for messages such as "tokenizer.json: normalizer: ...".
struct Node {
  const Json& json;
  std::string where;

  template <typename T>
  T get(const char* key, const T& fallback) const {
    return get_or<T>(json, key, fallback, where);
  }
  template <typename T>
  T required(const char* key) const {
    return get_required<T>(json, key, where);
  }
  // Null if absent or null.
  const Json* find(const char* key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  std::string type() const {
    if (!json.is_object()) {
      fail(ErrorKind::kConfig, "{}: expected an object, found {}", where, printable(json.dump()));
    }
    return get<std::string>("type", "");
  }
  // For a setting that only has this one supported value.
  template <typename T>
  void only(const char* key, const T& supported) const {
    const Json* value = find(key);
    require(value == nullptr || *value == Json(supported), ErrorKind::kConfig,
            "{}: {} = {} is not supported yet; supported: {}", where, key, value ? printable(value->dump()) : "",
            Json(supported).dump());
  }
};

template <typename Value>
struct Entry {
  const char* type;
  void (*read)(const Node& node, std::vector<Value>& out);
};

// Looks the type up in `entries` and reads it; "Sequence" reads the list under `members`.
template <typename Value, size_t kSize>
void read_component(const Node& node, const std::array<Entry<Value>, kSize>& entries, const char* members,
                    std::vector<Value>& out) {
  const std::string type = node.type();
  if (type == "Sequence") {
    const Json* list = node.find(members);
    require(list != nullptr && list->is_array(), ErrorKind::kConfig, "{}: Sequence needs a list '{}'", node.where,
            members);
    for (const Json& member : *list) read_component(Node{member, node.where}, entries, members, out);
    return;
  }
  const auto entry = std::ranges::find(entries, type, &Entry<Value>::type);
  std::string names = "Sequence";
  for (const auto& known : entries) names.append(", ").append(known.type);
  require(entry != entries.end(), ErrorKind::kConfig, "{}: type '{}' is not supported yet; supported: {}", node.where,
          printable(type), names);
  entry->read(Node{node.json, node.where + ": " + type}, out);
}

const std::array kNormalizers{
    Entry<Normalizer>{"BertNormalizer",
                      [](const Node& node, std::vector<Normalizer>& out) {
                        const bool lowercase = node.get("lowercase", true);
                        out.push_back(BertNormalizer{.clean_text = node.get("clean_text", true),
                                                     .handle_chinese_chars = node.get("handle_chinese_chars", true),
                                                     .strip_accents = node.get("strip_accents", lowercase),
                                                     .lowercase = lowercase});
                      }},
    Entry<Normalizer>{"Lowercase", [](const Node&, std::vector<Normalizer>& out) { out.push_back(Lowercase{}); }},
    Entry<Normalizer>{"NFD", [](const Node&, std::vector<Normalizer>& out) { out.push_back(Nfd{}); }},
    Entry<Normalizer>{"StripAccents", [](const Node&, std::vector<Normalizer>& out) { out.push_back(StripAccents{}); }},
    Entry<Normalizer>{"Strip",
                      [](const Node& node, std::vector<Normalizer>& out) {
                        out.push_back(
                            Strip{.left = node.get("strip_left", true), .right = node.get("strip_right", true)});
                      }},
};

void read_split(const Node& node, std::vector<PreTokenizer>& out) {
  const Json* pattern = node.find("pattern");
  const bool gpt2 = pattern != nullptr && *pattern == Json{{"Regex", kGpt2Pattern}};
  require(gpt2, ErrorKind::kConfig, "{}: pattern {} is not supported yet; supported: GPT-2's regular expression",
          node.where, pattern ? printable(pattern->dump()) : "(none)");
  node.only("behavior", "Isolated");
  node.only("invert", false);
  out.push_back(Gpt2Split{});
}

const std::array kPreTokenizers{
    Entry<PreTokenizer>{"BertPreTokenizer",
                        [](const Node&, std::vector<PreTokenizer>& out) { out.push_back(BertPreTokenizer{}); }},
    Entry<PreTokenizer>{"ByteLevel",
                        [](const Node& node, std::vector<PreTokenizer>& out) {
                          out.push_back(ByteLevelSplit{.add_prefix_space = node.get("add_prefix_space", true),
                                                       .use_regex = node.get("use_regex", true)});
                        }},
    Entry<PreTokenizer>{"Split", &read_split},
    Entry<PreTokenizer>{"WhitespaceSplit",
                        [](const Node&, std::vector<PreTokenizer>& out) { out.push_back(WhitespaceSplit{}); }},
    Entry<PreTokenizer>{"Whitespace", [](const Node&, std::vector<PreTokenizer>& out) { out.push_back(Whitespace{}); }},
    Entry<PreTokenizer>{"Punctuation",
                        [](const Node& node, std::vector<PreTokenizer>& out) {
                          node.only("behavior", "Isolated");
                          out.push_back(Punctuation{});
                        }},
    Entry<PreTokenizer>{"Digits",
                        [](const Node& node, std::vector<PreTokenizer>& out) {
                          out.push_back(Digits{.individual = node.get("individual_digits", false)});
                        }},
};

int32_t checked_id(const Json& value, const std::string& where) {
  const bool sound = value.is_number_integer() && value >= 0 && value <= kMaxTokenId;
  require(sound, ErrorKind::kConfig, "{}: {} is not an id in [0, {}]", where, printable(value.dump()), kMaxTokenId);
  return value.get<int32_t>();
}

Special read_special(const Node& node, const char* key) {
  const Json* value = node.find(key);
  const bool sound = value != nullptr && value->is_array() && value->size() == 2 && value->at(0).is_string();
  require(sound, ErrorKind::kConfig, "{}: '{}' must be [\"token\", id]", node.where, key);
  return {value->at(0).get<std::string>(), checked_id(value->at(1), node.where + ": " + key)};
}

TemplatePart read_special_part(const Node& node, const std::string& name) {
  TemplatePart part{TemplatePart::Kind::kSpecial};
  const Json* known = node.find("special_tokens");
  const bool defined = known != nullptr && known->is_object() && known->contains(name);
  require(defined, ErrorKind::kConfig, "{}: special token '{}' is not in special_tokens", node.where, printable(name));
  const Node token{known->at(name), node.where + ": special_tokens"};
  const Json *ids = token.find("ids"), *tokens = token.find("tokens");
  const bool sound = ids && tokens && ids->is_array() && tokens->is_array() && ids->size() == tokens->size();
  require(sound, ErrorKind::kConfig, "{}: '{}' needs equally long 'ids' and 'tokens'", token.where, printable(name));
  for (const Json& id : *ids) part.ids.push_back(checked_id(id, token.where));
  for (const Json& text : *tokens) {
    require(text.is_string(), ErrorKind::kConfig, "{}: tokens of '{}' must be strings", token.where, printable(name));
    part.tokens.push_back(text.get<std::string>());
  }
  return part;
}

Template read_template(const Node& node, const char* key) {
  const Json* list = node.find(key);
  require(list != nullptr && list->is_array(), ErrorKind::kConfig, "{}: '{}' must be a list", node.where, key);
  Template parts;
  for (const Json& item : *list) {
    const bool sound = item.is_object() && item.size() == 1 && item.begin()->is_object();
    require(sound, ErrorKind::kConfig, "{}: {} has the unexpected element {}", node.where, key, printable(item.dump()));
    const Node piece{*item.begin(), node.where + ": " + key};
    const auto id = piece.required<std::string>("id");
    TemplatePart part{TemplatePart::Kind::kSpecial};
    if (item.contains("Sequence")) {
      const bool is_first = id == "A";
      const bool fits = is_first || (id == "B" && std::string_view(key) == "pair");
      require(fits, ErrorKind::kConfig, "{}: sequence '{}' cannot stand in '{}'", node.where, printable(id), key);
      part.kind = is_first ? TemplatePart::Kind::kFirst : TemplatePart::Kind::kSecond;
    } else {
      require(item.contains("SpecialToken"), ErrorKind::kConfig, "{}: {} has the unexpected element {}", node.where,
              key, printable(item.dump()));
      part = read_special_part(node, id);
    }
    part.type_id = checked_id(piece.json.value("type_id", Json(0)), piece.where + ": type_id");
    parts.push_back(std::move(part));
  }
  const auto count = [&](TemplatePart::Kind kind) { return std::ranges::count(parts, kind, &TemplatePart::kind); };
  const bool has_each_once = count(TemplatePart::Kind::kFirst) == 1 &&
                             (std::string_view(key) == "single" || count(TemplatePart::Kind::kSecond) == 1);
  require(has_each_once, ErrorKind::kConfig,
          "{}: '{}' must hold each text once: a text that is there twice, or not at all, is not supported", node.where,
          key);
  return parts;
}

void read_trimming(const Node& node, PostProcessor& out) {
  if (node.get("trim_offsets", true)) out.trims.push_back({.add_prefix_space = node.get("add_prefix_space", true)});
}

PostProcessor with_trims(const std::vector<PostProcessor::TrimOffsets>& earlier, PostProcessor made) {
  made.trims = earlier;
  return made;
}

// `has_template` tells whether an earlier member of a Sequence has already put special tokens around the texts.
void read_post_processor(const Node& node, PostProcessor& out, bool& has_template) {
  const std::string type = node.type();
  const Node here{node.json, node.where + ": " + type};
  if (type == "Sequence") {
    const Json* list = here.find("processors");
    require(list != nullptr && list->is_array(), ErrorKind::kConfig, "{}: needs a list 'processors'", here.where);
    for (const Json& member : *list) read_post_processor(Node{member, node.where}, out, has_template);
    return;
  }
  require(!has_template, ErrorKind::kConfig, "{}: a processor after one that adds special tokens is not supported yet",
          here.where);
  has_template = type != "ByteLevel";
  if (type == "ByteLevel") {
    read_trimming(here, out);
  } else if (type == "BertProcessing") {
    out = with_trims(out.trims, bert_post_processor(read_special(here, "cls"), read_special(here, "sep")));
  } else if (type == "RobertaProcessing") {
    out = with_trims(out.trims, roberta_post_processor(read_special(here, "cls"), read_special(here, "sep")));
    read_trimming(here, out);
  } else if (type == "TemplateProcessing") {
    out.single = read_template(here, "single");
    out.pair = read_template(here, "pair");
  } else {
    fail(ErrorKind::kConfig,
         "{}: type '{}' is not supported yet; supported: BertProcessing, RobertaProcessing, TemplateProcessing, "
         "ByteLevel, "
         "Sequence",
         node.where, printable(type));
  }
}

Decoder read_decoder(const Node& node) {
  const std::string type = node.type();
  if (type == "ByteLevel") return ByteLevelDecoder{};
  if (type == "WordPiece")
    return WordPieceDecoder{.prefix = node.get<std::string>("prefix", "##"), .cleanup = node.get("cleanup", true)};
  fail(ErrorKind::kConfig, "{}: type '{}' is not supported yet; supported: WordPiece, ByteLevel", node.where,
       printable(type));
}

void read_vocabulary(const Node& model, Vocabulary& vocabulary) {
  const Json* vocab = model.find("vocab");
  require(vocab != nullptr && vocab->is_object(), ErrorKind::kConfig, "{}: 'vocab' must be an object of tokens and ids",
          model.where);
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_integer()) {
      fail(ErrorKind::kConfig, "{}: id {} of token '{}' is not an integer", model.where, printable(id.dump()),
           printable(token));
    }
    const bool huge = id.is_number_unsigned() && id.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    vocabulary.add(token, huge ? INT64_MAX : id.get<int64_t>(), model.where);
  }
}

BytePair::Merges read_merges(const Node& model) {
  const Json* list = model.find("merges");
  require(list != nullptr && list->is_array(), ErrorKind::kConfig, "{}: 'merges' must be a list", model.where);
  BytePair::Merges merges;
  merges.reserve(list->size());
  for (const Json& merge : *list) {
    if (merge.is_array() && merge.size() == 2 && merge.at(0).is_string() && merge.at(1).is_string()) {
      merges.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    if (text.starts_with("#version")) continue;
    const size_t space = text.find(' ');
    const bool sound = space != std::string::npos && text.find(' ', space + 1) == std::string::npos;
    if (!sound) {
      fail(ErrorKind::kConfig, "{}: merge {} is {}, not two tokens", model.where, merges.size(),
           printable(merge.dump()));
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

// Files from before 2020 do not name the type of their model.
std::string model_type(const Node& model) {
  std::string type = model.type();
  if (!type.empty()) return type;
  if (model.find("merges") != nullptr) return "BPE";
  const Json* vocab = model.find("vocab");
  return vocab != nullptr && vocab->is_array() ? "Unigram" : "WordPiece";
}

void read_model(const Node& node, TokenizerSpec& spec) {
  const std::string type = model_type(node);
  const Node model{node.json, node.where + ": " + type};
  require(type == "WordPiece" || type == "BPE", ErrorKind::kConfig,
          "{}: model type '{}' is not supported yet; supported: WordPiece, BPE (byte level)", spec.source,
          printable(type));
  read_vocabulary(model, spec.vocabulary);
  if (type == "WordPiece") {
    WordPieceOptions options{.unk_token = model.get<std::string>("unk_token", "[UNK]"),
                             .continuing_subword_prefix = model.get<std::string>("continuing_subword_prefix", "##"),
                             .max_input_chars_per_word = model.get<int64_t>("max_input_chars_per_word", 100)};
    require(options.max_input_chars_per_word >= 0, ErrorKind::kConfig, "{}: max_input_chars_per_word is negative",
            model.where);
    spec.model = std::move(options);
    return;
  }
  const Json* dropout = model.find("dropout");
  require(dropout == nullptr || *dropout == Json(0.0), ErrorKind::kConfig, "{}: dropout is not supported", model.where);
  model.only("continuing_subword_prefix", "");
  model.only("end_of_word_suffix", "");
  model.only("byte_fallback", false);
  BytePairSpec spec_of_model;
  if (model.find("unk_token") != nullptr) spec_of_model.options.unk_token = model.required<std::string>("unk_token");
  spec_of_model.options.fuse_unk = model.get("fuse_unk", false);
  spec_of_model.options.ignore_merges = model.get("ignore_merges", false);
  spec_of_model.merges = read_merges(model);
  spec.model = std::move(spec_of_model);
}

void read_added_tokens(const Node& root, TokenizerSpec& spec) {
  const Json* list = root.find("added_tokens");
  if (list == nullptr) return;
  require(list->is_array(), ErrorKind::kConfig, "{}: 'added_tokens' must be a list", root.where);
  for (const Json& item : *list) {
    require(item.is_object(), ErrorKind::kConfig, "{}: added_tokens: {} is not an object", root.where,
            printable(item.dump()));
    const Node token{item, root.where + ": added_tokens"};
    if (const Json* id = token.find("id")) checked_id(*id, token.where);
    const bool special = token.get("special", false);
    spec.added_tokens.push_back({.content = token.required<std::string>("content"),
                                 .single_word = token.get("single_word", false),
                                 .lstrip = token.get("lstrip", false),
                                 .rstrip = token.get("rstrip", false),
                                 .normalized = token.get("normalized", !special),
                                 .special = special});
  }
}

// Byte-level BPE works on bytes, everything else on characters; the two do not mix.
void check_levels(const TokenizerSpec& spec) {
  const bool byte_model = std::holds_alternative<BytePairSpec>(spec.model);
  size_t byte_level_at = spec.pre_tokenizers.size();
  for (size_t i = 0; i < spec.pre_tokenizers.size(); ++i)
    if (std::holds_alternative<ByteLevelSplit>(spec.pre_tokenizers[i])) byte_level_at = std::min(byte_level_at, i);
  const bool is_last = byte_level_at + 1 == spec.pre_tokenizers.size();
  require(byte_model == is_last && (byte_model || byte_level_at == spec.pre_tokenizers.size()), ErrorKind::kConfig,
          "{}: {}", spec.source,
          byte_model ? "model type 'BPE' without a ByteLevel pre-tokenizer at the end is not supported yet"
                     : "pre-tokenizer ByteLevel is only supported with model type BPE");
}

}  // namespace

PostProcessor bert_post_processor(const Special& cls, const Special& sep) {
  using Kind = TemplatePart::Kind;
  const TemplatePart open{Kind::kSpecial, 0, {cls.second}, {cls.first}};
  const TemplatePart close{Kind::kSpecial, 0, {sep.second}, {sep.first}};
  TemplatePart close_second = close;
  close_second.type_id = 1;
  PostProcessor processor;
  processor.single = {open, {Kind::kFirst, 0}, close};
  processor.pair = {open, {Kind::kFirst, 0}, close, {Kind::kSecond, 1}, close_second};
  return processor;
}

PostProcessor roberta_post_processor(const Special& cls, const Special& sep) {
  using Kind = TemplatePart::Kind;
  const TemplatePart open{Kind::kSpecial, 0, {cls.second}, {cls.first}};
  const TemplatePart close{Kind::kSpecial, 0, {sep.second}, {sep.first}};
  PostProcessor processor;
  processor.single = {open, {Kind::kFirst, 0}, close};
  processor.pair = {open, {Kind::kFirst, 0}, close, close, {Kind::kSecond, 0}, close};
  processor.types_of_windows = true;
  return processor;
}

Direction read_direction(const std::string& side, const std::string& source) {
  if (side == "right" || side == "Right") return Direction::kRight;
  require(side == "left" || side == "Left", ErrorKind::kConfig, "{}: '{}' is neither right nor left", source,
          printable(side));
  return Direction::kLeft;
}

TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& source) {
  return spec_from_json(parse_json(text, source), source);
}

TokenizerSpec spec_from_json(const Json& json, const std::string& source) {
  require(json.is_object(), ErrorKind::kConfig, "{}: expected an object", source);
  const Node root{json, source};
  const auto version = root.get<std::string>("version", "1.0");
  require(version == "1.0", ErrorKind::kConfig, "{}: version '{}' is not supported; supported: 1.0", source,
          printable(version));
  TokenizerSpec spec;
  spec.source = source;
  const Json* model = root.find("model");
  require(model != nullptr, ErrorKind::kConfig, "{}: key 'model' is missing", source);
  read_model(Node{*model, source + ": model"}, spec);
  if (const Json* normalizer = root.find("normalizer"))
    read_component(Node{*normalizer, source + ": normalizer"}, kNormalizers, "normalizers", spec.normalizers);
  if (const Json* pre_tokenizer = root.find("pre_tokenizer"))
    read_component(Node{*pre_tokenizer, source + ": pre_tokenizer"}, kPreTokenizers, "pretokenizers",
                   spec.pre_tokenizers);
  bool has_template = false;
  if (const Json* post_processor = root.find("post_processor"))
    read_post_processor(Node{*post_processor, source + ": post_processor"}, spec.post_processor, has_template);
  if (const Json* decoder = root.find("decoder")) spec.decoder = read_decoder(Node{*decoder, source + ": decoder"});
  read_added_tokens(root, spec);
  if (const Json* truncation = root.find("truncation")) {
    const std::string where = source + ": truncation";
    require(truncation->is_object(), ErrorKind::kConfig, "{}: expected an object, found {}", where,
            printable(truncation->dump()));
    const auto side = get_or<std::string>(*truncation, "direction", "Right", where);
    spec.truncation_side = read_direction(side, where + ": direction");
  }
  check_levels(spec);
  return spec;
}

}  // namespace strake::tokenizers
