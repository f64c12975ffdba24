#include "strake/tokenizers/tokenizer.h"

#include <algorithm>
#include <limits>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/tokenizer_files.h"
#include "strake/core/utf8.h"
#include "strake/tokenizers/pretrained_folder.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

void push_token(Encoding& encoding, int32_t id, TokenSource source, std::string token,
                std::pair<int32_t, int32_t> offsets) {
  encoding.ids.push_back(id);
  encoding.type_ids.push_back(source.text);
  encoding.attention_mask.push_back(1);
  encoding.special_tokens_mask.push_back(0);
  encoding.offsets.push_back(offsets);
  encoding.tokens.push_back(std::move(token));
  encoding.sources.push_back(source);
}

// Counts the characters before bytes that are near each other.
class CharCounter {
 public:
  explicit CharCounter(std::string_view text) : text_(text) {}
  size_t before(size_t byte) {
    if (byte >= byte_) {
      chars_ += count_characters(text_.substr(byte_, byte - byte_));
    } else {
      chars_ -= count_characters(text_.substr(byte, byte_ - byte));
    }
    byte_ = byte;
    return chars_;
  }

 private:
  std::string_view text_;
  size_t byte_ = 0;
  size_t chars_ = 0;
};

// The character of `piece` behind every byte of its text, as the model writes it.
void find_chars_of_bytes(std::span<const AlignedChar> piece, const std::string& text, bool in_alphabet,
                         std::vector<uint32_t>& chars) {
  chars.clear();
  size_t at = 0;
  for (uint32_t i = 0; i < piece.size(); ++i) {
    for (int byte = 0; byte < utf8_length(piece[i].value); ++byte, ++at) {
      const int written = in_alphabet ? alphabet_length(static_cast<uint8_t>(text[at])) : 1;
      for (int n = 0; n < written; ++n) chars.push_back(i);
    }
  }
}

}  // namespace

void check_text(std::string_view text) {
  require(text.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()), ErrorKind::kData,
          "text has {} bytes; at most 2^31 - 2 can be tokenized at once", text.size());
  const size_t valid = check_utf8(text).valid;
  if (valid < text.size()) {
    fail(ErrorKind::kData, "text is not valid UTF-8 at byte {} (0x{:02x})", valid, static_cast<uint8_t>(text[valid]));
  }
}

Truncation without_special_tokens(const Truncation& truncation, int64_t added) {
  const bool is_possible = truncation.stride >= 0 && truncation.max_length - added >= truncation.stride;
  require(is_possible && truncation.max_length >= added, ErrorKind::kConfig,
          "truncation to max_length={} with stride={} is not possible: {} special tokens are added",
          truncation.max_length, truncation.stride, added);
  Truncation reduced = truncation;
  reduced.max_length -= added;
  return reduced;
}

Tokenizer::Tokenizer(TokenizerSpec spec, std::map<std::string, std::string> files,
                     std::optional<int64_t> model_max_length)
    : spec_(std::move(spec)), files_(std::move(files)), model_max_length_(model_max_length) {
  fingerprint_ = tokenizers::fingerprint(spec_);
  if (const auto* word_piece = std::get_if<WordPieceOptions>(&spec_.model)) {
    model_.emplace<WordPiece>(spec_.vocabulary, *word_piece, spec_.source);
  } else {
    auto& byte_pair = std::get<BytePairSpec>(spec_.model);
    model_.emplace<BytePair>(spec_.vocabulary, byte_pair.merges, byte_pair.options, spec_.source);
    byte_pair.merges = {};  // now in the model's own table
  }
  for (const AddedToken& token : spec_.added_tokens)
    if (!token.content.empty()) added_.add(token, spec_.vocabulary, spec_.normalizers, spec_.source);
  added_.finish(spec_.source);
  cutter_ = TextCutter(spec_, added_);
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  LoadedFiles loaded = load_files(path);
  return std::make_shared<const Tokenizer>(std::move(loaded.spec), std::move(loaded.files), loaded.model_max_length);
}

// The tokens of a text so far, and memory that its parts use one after the other.
struct Tokenizer::Progress {
  TokenSource source;
  int64_t limit;  // of tokens that are wanted
  bool prefix_space = false;
  Encoding encoding{};
  std::vector<ModelToken> tokens{};
  BytePair::Scratch scratch{};
  std::string text{};             // of a piece
  std::vector<uint32_t> chars{};  // by byte of it

  bool is_enough() const { return std::ssize(encoding.ids) > limit; }
};

void Tokenizer::push_added(std::span<const AlignedChar> token, int32_t id, Progress& progress) const {
  push_token(progress.encoding, id, progress.source, to_utf8(token), {token.front().begin, token.back().end});
  ++progress.source.word;
}

void Tokenizer::tokenize_piece(std::span<const AlignedChar> piece, Progress& progress) const {
  std::string& text = progress.text;
  text.clear();
  append_aligned(piece, text);
  progress.tokens.clear();
  if (const WordPiece* model = word_piece()) {
    model->tokenize(text, progress.tokens);
  } else {
    byte_pair()->tokenize(text, progress.scratch, progress.tokens);
  }
  std::vector<uint32_t>& chars = progress.chars;
  find_chars_of_bytes(piece, text, byte_pair() != nullptr, chars);
  for (const ModelToken& token : progress.tokens) {
    if (progress.is_enough()) break;
    const std::pair offsets{piece[chars[token.begin]].begin, piece[chars[token.end - 1]].end};
    push_token(progress.encoding, token.id, progress.source, *spec_.vocabulary.token(token.id), offsets);
  }
  ++progress.source.word;
}

void Tokenizer::encode_part(std::string_view part, int32_t first_char, Progress& progress) const {
  PieceList list{.text = align(part, first_char), .pieces = {}};
  normalize(spec_.normalizers, list.text);
  const std::string normalized = to_utf8(list.text);
  std::vector<Section> sections;
  added_.normalized().find(normalized, sections);
  CharCounter chars(normalized);
  for (const Section& section : sections) {
    const size_t begin = chars.before(section.begin);
    list.pieces.push_back({begin, chars.before(section.end), section.id});
  }
  pre_tokenize(spec_.pre_tokenizers, progress.prefix_space, list);
  for (const Piece& piece : list.pieces) {
    if (progress.is_enough()) break;
    const std::span<const AlignedChar> text(list.text.data() + piece.begin, piece.end - piece.begin);
    if (piece.added_id < 0) {
      tokenize_piece(text, progress);
    } else {
      push_added(text, piece.added_id, progress);
    }
  }
}

// Two passes, as Hugging Face does: tokens that are not normalized are found in the raw text, then each part in between
// is normalized on its own and searched for the normalized ones. Stops once there are more than `limit` tokens.
Encoding Tokenizer::encode_one(std::string_view text, const Part& part) const {
  check_text(text);
  Progress progress{.source = {.text = part.index, .word = 0}, .limit = part.limit, .prefix_space = part.prefix_space};
  std::vector<Section> sections;
  added_.raw().find(text, sections);
  CharCounter chars(text);
  for (const Section& section : sections) {
    for (size_t begin = section.begin; begin < section.end && !progress.is_enough();) {
      const auto first_char = static_cast<int32_t>(chars.before(begin));
      if (section.id >= 0) {
        push_added(align(text.substr(begin, section.end - begin), first_char), section.id, progress);
        break;
      }
      const size_t end = cutter_.part_end(text.substr(0, section.end), begin);
      encode_part(text.substr(begin, end - begin), first_char, progress);
      begin = end;
    }
  }
  return std::move(progress.encoding);
}

Encoding Tokenizer::encode(std::string_view text, std::optional<std::string_view> pair,
                           const EncodeOptions& options) const {
  const int64_t added = options.add_special_tokens ? spec_.post_processor.added(pair.has_value()) : 0;
  std::optional<Truncation> truncation;
  if (options.truncation) {
    truncation = without_special_tokens(*options.truncation, added);
    if (!truncation->direction) truncation->direction = spec_.truncation_side;
  }
  const bool only_start = !options.overflow && !pair && truncation && truncation->direction == Direction::kRight;
  Encoding first = encode_one(
      text,
      {.index = 0, .limit = only_start ? truncation->max_length : kNoLimit, .prefix_space = options.prefix_space});
  std::optional<Encoding> second;
  if (pair) second = encode_one(*pair, {.index = 1, .limit = kNoLimit, .prefix_space = options.prefix_space});
  Encoding* second_or_null = second ? &*second : nullptr;
  if (truncation) truncate_pair(first, second_or_null, *truncation);
  const bool was_cut = !first.overflowing.empty() || (second && !second->overflowing.empty());
  if (!options.overflow) first.overflowing.clear();
  if (!options.overflow && second) second->overflowing.clear();
  Encoding encoding = spec_.post_processor.process(first, second_or_null, options.add_special_tokens);
  encoding.was_cut = was_cut;
  if (options.padding) pad(encoding, *options.padding);
  return encoding;
}

void Tokenizer::encode_windows(std::string_view text, std::string_view pair, const Truncation& truncation,
                               const std::function<void(const Encoding&)>& sink) const {
  Truncation reduced = without_special_tokens(truncation, spec_.post_processor.added(true));
  if (!reduced.direction) reduced.direction = spec_.truncation_side;
  const Encoding first = encode_one(text, {.index = 0, .limit = kNoLimit});
  const Encoding second = encode_one(pair, {.index = 1, .limit = kNoLimit});
  const auto ranges = windows_of_second(std::ssize(first.ids), std::ssize(second.ids), reduced);
  for (const auto& [begin, end] : ranges) {
    // Post-processors treat further windows in another way than the first, which is why it is there each time.
    Encoding question = first;
    Encoding window = part_of(second, ranges.front().first, ranges.front().second);
    const bool is_first = begin == ranges.front().first;
    if (!is_first) window.overflowing.push_back(part_of(second, begin, end));
    const Encoding encoding = spec_.post_processor.process(question, &window, /*add_special_tokens=*/true);
    sink(is_first ? encoding : encoding.overflowing.front());
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string* token = added_.shown(id);
    if (token == nullptr) token = spec_.vocabulary.token(id);
    if (token == nullptr || (options.skip_special_tokens && added_.is_special(*token))) continue;
    tokens.push_back(*token);
  }
  std::string text = tokenizers::decode(spec_.decoder, tokens);
  return spec_.cleans_up_spaces ? clean_up_spaces(std::move(text)) : text;
}

int64_t Tokenizer::vocab_size() const {
  const auto is_new = [this](const auto& entry) { return !spec_.vocabulary.find(entry.second.content); };
  return static_cast<int64_t>(spec_.vocabulary.size()) + std::ranges::count_if(added_.tokens(), is_new);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto added = added_.find(token);
  return added ? added : spec_.vocabulary.find(token);
}

std::optional<int32_t> Tokenizer::id_of_role(const std::string& role) const {
  const auto found = spec_.roles.find(role);
  return found == spec_.roles.end() ? std::nullopt : token_to_id(found->second);
}

std::string_view Tokenizer::id_to_token(int32_t id) const {
  const std::string* token = added_.shown(id);
  if (token == nullptr) token = spec_.vocabulary.token(id);
  return token == nullptr ? std::string_view() : std::string_view(*token);
}

void Tokenizer::save(const std::filesystem::path& directory, const Json& settings) const {
  strake::create_directories(directory);
  std::map<std::string, std::string> files = files_;
  if (!settings.empty()) {
    std::string& config = files["tokenizer_config.json"];
    auto changed = config.empty() ? nlohmann::ordered_json::object() : nlohmann::ordered_json::parse(config);
    for (const auto& [key, value] : settings.items()) changed[key] = value;
    config = changed.dump(2) + "\n";
  }
  for (const auto& [name, content] : files) write_file_atomically(directory / name, content);
  for (const char* name : kTokenizerFiles) {
    std::error_code error;
    if (!files.contains(name) && is_there(directory / name)) std::filesystem::remove(directory / name, error);
    require(!error, ErrorKind::kIo, "cannot remove {}, which is of another tokenizer: {}", (directory / name).string(),
            error.message());
  }
}

}  // namespace strake::tokenizers
