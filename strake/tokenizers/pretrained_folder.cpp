#include "strake/tokenizers/pretrained_folder.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/core/log.h"
#include "strake/core/tokenizer_files.h"
#include "strake/core/utf8.h"
#include "strake/tokenizers/special_tokens.h"
#include "strake/tokenizers/tokenizer_json.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace fs = std::filesystem;
namespace {

enum class Family { kAsWritten, kBert, kRoberta, kGpt2 };

struct FamilyName {
  std::string_view tokenizer_class, model_type;
  Family family;
};
constexpr std::array kFamilies{
    FamilyName{"BertTokenizer", "bert", Family::kBert},
    FamilyName{"DistilBertTokenizer", "distilbert", Family::kBert},
    FamilyName{"ElectraTokenizer", "electra", Family::kBert},
    FamilyName{"MobileBertTokenizer", "mobilebert", Family::kBert},
    FamilyName{"LayoutLMTokenizer", "layoutlm", Family::kBert},
    FamilyName{"SqueezeBertTokenizer", "squeezebert", Family::kBert},
    FamilyName{"RobertaTokenizer", "roberta", Family::kRoberta},
    FamilyName{"GPT2Tokenizer", "gpt2", Family::kGpt2},
};

constexpr std::array kBertSpecials{SpecialDefault{"unk_token", "[UNK]"}, SpecialDefault{"sep_token", "[SEP]"},
                                   SpecialDefault{"pad_token", "[PAD]"}, SpecialDefault{"cls_token", "[CLS]"},
                                   SpecialDefault{"mask_token", "[MASK]"}};
constexpr std::array kRobertaSpecials{SpecialDefault{"bos_token", "<s>"},    SpecialDefault{"eos_token", "</s>"},
                                      SpecialDefault{"unk_token", "<unk>"},  SpecialDefault{"sep_token", "</s>"},
                                      SpecialDefault{"pad_token", "<pad>"},  SpecialDefault{"cls_token", "<s>"},
                                      SpecialDefault{"mask_token", "<mask>"}};
constexpr std::array kGpt2Specials{SpecialDefault{"bos_token", "<|endoftext|>"},
                                   SpecialDefault{"eos_token", "<|endoftext|>"},
                                   SpecialDefault{"unk_token", "<|endoftext|>"}};

// The JSON files of a folder, null where absent, and the raw content of all that belong to the tokenizer.
struct Folder {
  fs::path path;
  std::map<std::string, std::string> files;
  Json tokenizer_config = Json::object(), special_tokens_map = Json::object(), added_tokens = Json::object();
  bool is_file = false;  // the path is that of the one file, whatever its name

  bool has(const char* name) const { return files.contains(name); }
  std::string source(const char* name) const { return (is_file ? path : path / name).string(); }
  SpecialTokenFiles special_tokens() const {
    return {tokenizer_config, special_tokens_map, added_tokens, source("tokenizer_config.json")};
  }
};

Json parse_object(const Folder& folder, const char* name) {
  if (!folder.has(name)) return Json::object();
  Json json = parse_json(folder.files.at(name), folder.source(name));
  require(json.is_object(), ErrorKind::kConfig, "{}: expected an object", folder.source(name));
  return json;
}

Folder read_folder(const fs::path& path) {
  Folder folder{.path = path, .files = {}};
  for (const char* name : kTokenizerFiles) {
    const fs::path file = resolve_inside(path, name, path.string());
    if (is_there(file)) folder.files[name] = read_file(file, kMaxTokenizerBytes);
  }
  folder.tokenizer_config = parse_object(folder, "tokenizer_config.json");
  folder.special_tokens_map = parse_object(folder, "special_tokens_map.json");
  folder.added_tokens = parse_object(folder, "added_tokens.json");
  return folder;
}

std::string tokenizer_class(const Folder& folder) {
  std::string name =
      get_or<std::string>(folder.tokenizer_config, "tokenizer_class", "", folder.source("tokenizer_config.json"));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

Family find_family(const Folder& folder) {
  const std::string name = tokenizer_class(folder);
  for (const FamilyName& known : kFamilies)
    if (name == known.tokenizer_class) return known.family;
  if (!name.empty()) return Family::kAsWritten;
  const fs::path config = folder.path / "config.json";
  if (!is_there(config)) return Family::kAsWritten;
  const auto type = get_or<std::string>(read_json(config, kMaxConfigBytes), "model_type", "", config.string());
  for (const FamilyName& known : kFamilies)
    if (type == known.model_type) return known.family;
  return Family::kAsWritten;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (end != std::string_view::npos && line.ends_with('\r')) line.remove_suffix(1);
    found.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return found;
}

void require_utf8(std::string_view text, const std::string& source) {
  const size_t valid = check_utf8(text).valid;
  require(valid == text.size(), ErrorKind::kConfig, "{}: not valid UTF-8 at byte {}", source, valid);
}

// One token per line; the line number is the id. Of equal lines the last one counts.
void read_vocab_txt(std::string_view text, const std::string& source, Vocabulary& vocabulary) {
  require_utf8(text, source);
  int64_t id = 0;
  for (const std::string_view line : lines(text)) vocabulary.add(trim_end(line), id++, source);
  require(id > 0, ErrorKind::kConfig, "{}: the vocabulary is empty", source);
}

// vocab.json and merges.txt hold what the model section of a tokenizer.json does.
void read_vocab_and_merges(const Folder& folder, TokenizerSpec& spec) {
  const std::string& merges = folder.files.at("merges.txt");
  require_utf8(merges, folder.source("merges.txt"));
  Json model{{"type", "BPE"}, {"vocab", parse_object(folder, "vocab.json")}, {"merges", Json::array()}};
  for (const std::string_view line : lines(merges)) model["merges"].push_back(std::string(line));
  const Json json{{"model", std::move(model)}, {"pre_tokenizer", {{"type", "ByteLevel"}}}};
  spec = spec_from_json(json, folder.source("vocab.json"));
}

// The id that a special token will have: that of the vocabulary, or the one it gets when added.
std::pair<std::string, int32_t> with_id(const std::string& content, const TokenizerSpec& spec) {
  AddedTokens added;
  for (const AddedToken& token : spec.added_tokens)
    if (!token.content.empty()) added.add(token, spec.vocabulary, spec.normalizers, spec.source);
  const auto id = added.find(content);
  require(id.has_value(), ErrorKind::kConfig, "{}: special token '{}' is not in the vocabulary", spec.source,
          printable(content));
  return {content, *id};
}

void become_bert(const Folder& folder, TokenizerSpec& spec) {
  const Json& config = folder.tokenizer_config;
  const std::string source = folder.source("tokenizer_config.json");
  const bool lowercase = get_or(config, "do_lower_case", true, source);
  const BertNormalizer normalizer{.clean_text = true,
                                  .handle_chinese_chars = get_or(config, "tokenize_chinese_chars", true, source),
                                  .strip_accents = get_or(config, "strip_accents", lowercase, source),
                                  .lowercase = lowercase};
  if (spec.normalizers.size() == 1 && std::holds_alternative<BertNormalizer>(spec.normalizers[0]) &&
      std::get<BertNormalizer>(spec.normalizers[0]).lowercase != lowercase)
    log::warning(
        "{}: lowercase is {} here as transformers has it (do_lower_case of tokenizer_config.json, true if absent), "
        "not {} as tokenizer.json says",
        folder.path.string(), lowercase, !lowercase);
  const SpecialTokens specials(folder.special_tokens(), spec.vocabulary, std::move(spec.added_tokens), kBertSpecials);
  spec.model = WordPieceOptions{.unk_token = specials.content("unk_token")};
  spec.normalizers = {normalizer};
  spec.pre_tokenizers = {BertPreTokenizer{}};
  spec.added_tokens = specials.tokens();
  spec.roles = specials.contents();
  spec.post_processor =
      bert_post_processor(with_id(specials.content("cls_token"), spec), with_id(specials.content("sep_token"), spec));
  spec.decoder = WordPieceDecoder{};
}

void become_byte_level(const Folder& folder, Family family, TokenizerSpec& spec) {
  const Json& config = folder.tokenizer_config;
  const std::string source = folder.source("tokenizer_config.json");
  const bool add_prefix_space = get_or(config, "add_prefix_space", false, source);
  const bool roberta = family == Family::kRoberta;
  const auto defaults =
      roberta ? std::span<const SpecialDefault>(kRobertaSpecials) : std::span<const SpecialDefault>(kGpt2Specials);
  const SpecialTokens specials(folder.special_tokens(), spec.vocabulary, std::move(spec.added_tokens), defaults);
  std::get<BytePairSpec>(spec.model).options = {};
  spec.normalizers.clear();
  spec.pre_tokenizers = {ByteLevelSplit{.add_prefix_space = add_prefix_space}};
  spec.added_tokens = specials.tokens();
  spec.roles = specials.contents();
  spec.decoder = ByteLevelDecoder{};
  if (roberta) {
    spec.post_processor = roberta_post_processor(with_id(specials.content("cls_token"), spec),
                                                 with_id(specials.content("sep_token"), spec));
    if (get_or(config, "trim_offsets", true, source)) spec.post_processor.trims = {{add_prefix_space}};
  } else if (!folder.has("tokenizer.json")) {
    spec.post_processor = {};
    for (const char* key : {"add_bos_token", "add_eos_token"}) {
      require(!get_or(config, key, false, source), ErrorKind::kConfig,
              "{}: {} = true is not supported yet without a tokenizer.json", source, key);
    }
  }
}

std::optional<int64_t> read_model_max_length(const Folder& folder) {
  const auto found = folder.tokenizer_config.find("model_max_length");
  if (found == folder.tokenizer_config.end() || !found->is_number()) return std::nullopt;
  const auto length = found->get<double>();  // transformers writes 1e30 for "no limit"
  constexpr double kUnlimited = 1e9;
  if (length < 1 || length > kUnlimited) return std::nullopt;
  return static_cast<int64_t>(length);
}

// What AutoTokenizer needs to load the saved folder with the same behaviour.
std::string minimal_config(Family family, const TokenizerSpec& spec) {
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (family == Family::kBert) {
    const auto& normalizer = std::get<BertNormalizer>(spec.normalizers.at(0));
    config = {{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", normalizer.lowercase}};
  } else if (family != Family::kAsWritten) {
    config["tokenizer_class"] = family == Family::kRoberta ? "RobertaTokenizer" : "GPT2Tokenizer";
  }
  return config.dump(2) + "\n";
}

// A class of another family may treat text and pairs in its own way.
void check_class(const Folder& folder, Family family) {
  const std::string name = tokenizer_class(folder);
  const bool is_general = name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend";
  if (family != Family::kAsWritten || is_general) return;
  const std::string source = folder.source("tokenizer_config.json");
  require(folder.has("tokenizer.json"), ErrorKind::kConfig,
          "{}: tokenizer_class '{}' is not known here; save the tokenizer once with transformers, which writes a "
          "tokenizer.json",
          source, printable(name));
  log::warning("{}: tokenizer_class '{}' is not known here: tokenizer.json is taken as it is written", source,
               printable(name));
}

// Transformers gives a model only those of the tokenizer's results that model_input_names lists, or its class by
// default.
bool gives_token_types(const Folder& folder) {
  const auto found = folder.tokenizer_config.find("model_input_names");
  if (found == folder.tokenizer_config.end() || found->is_null()) {
    return !tokenizer_class(folder).starts_with("DistilBert");
  }
  require(found->is_array(), ErrorKind::kConfig, "{}: model_input_names is not a list",
          folder.source("tokenizer_config.json"));
  return std::ranges::find(*found, "token_type_ids") != found->end();
}

LoadedFiles load_folder(Folder folder, Family family) {
  const std::string config = folder.source("tokenizer_config.json");
  require(!get_or(folder.tokenizer_config, "split_special_tokens", false, config), ErrorKind::kConfig,
          "{}: split_special_tokens = true is not supported yet", config);
  check_class(folder, family);
  LoadedFiles loaded;
  TokenizerSpec& spec = loaded.spec;
  if (folder.has("tokenizer.json")) {
    spec = read_tokenizer_json(folder.files.at("tokenizer.json"), folder.source("tokenizer.json"));
    const bool word_piece = std::holds_alternative<WordPieceOptions>(spec.model);
    require(family == Family::kAsWritten || word_piece == (family == Family::kBert), ErrorKind::kConfig,
            "{}: a {} model does not fit the tokenizer class that {} names", spec.source,
            word_piece ? "WordPiece" : "BPE", folder.path.string());
  } else if (folder.has("vocab.txt")) {
    require(family == Family::kAsWritten || family == Family::kBert, ErrorKind::kConfig,
            "{}: vocab.json and merges.txt, or tokenizer.json, are needed; only vocab.txt is there",
            folder.path.string());
    family = Family::kBert;
    spec.source = folder.source("vocab.txt");
    read_vocab_txt(folder.files.at("vocab.txt"), spec.source, spec.vocabulary);
  } else {
    require(folder.has("vocab.json") && folder.has("merges.txt"), ErrorKind::kIo,
            "{}: no tokenizer.json, no vocab.txt, and not both of vocab.json and merges.txt", folder.path.string());
    read_vocab_and_merges(folder, spec);
    require(family != Family::kBert, ErrorKind::kConfig, "{}: a BERT tokenizer needs vocab.txt or tokenizer.json",
            folder.path.string());
    if (family == Family::kAsWritten) family = spec.vocabulary.find("<s>") ? Family::kRoberta : Family::kGpt2;
  }
  if (family == Family::kBert) become_bert(folder, spec);
  if (family == Family::kRoberta || family == Family::kGpt2) become_byte_level(folder, family, spec);
  if (family == Family::kAsWritten) {
    const auto specials = SpecialTokens::beside(folder.special_tokens(), spec.vocabulary, std::move(spec.added_tokens));
    spec.added_tokens = specials.tokens();
    spec.roles = specials.contents();
  }
  if (!gives_token_types(folder)) spec.post_processor.drop_types();
  const auto read_side = [&](const char* key, Direction& side) {
    const auto text = get_or<std::string>(folder.tokenizer_config, key, "", config);
    if (!text.empty()) side = read_direction(text, config + ": " + key);
  };
  read_side("truncation_side", spec.truncation_side);
  read_side("padding_side", spec.padding_side);
  // Transformers leaves byte-level text as it is.
  const bool cleans_up = get_or<bool>(folder.tokenizer_config, "clean_up_tokenization_spaces", false, config);
  spec.cleans_up_spaces = cleans_up && std::holds_alternative<WordPieceOptions>(spec.model);
  loaded.model_max_length = read_model_max_length(folder);
  if (!folder.has("tokenizer_config.json")) folder.files["tokenizer_config.json"] = minimal_config(family, spec);
  loaded.files = std::move(folder.files);
  return loaded;
}

}  // namespace

LoadedFiles load_files(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    Folder folder = read_folder(path);
    const Family family = find_family(folder);
    return load_folder(std::move(folder), family);
  }
  Folder folder{.path = path, .files = {}, .is_file = true};
  const bool is_json = path.extension() == ".json";
  folder.files[is_json ? "tokenizer.json" : "vocab.txt"] = read_file(path, kMaxTokenizerBytes);
  return load_folder(std::move(folder), is_json ? Family::kAsWritten : Family::kBert);
}

}  // namespace strake::tokenizers
