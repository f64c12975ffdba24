#include "strake/tokenizers/fast_encoder.h"

#include <algorithm>
#include <array>

#include "strake/core/error.h"
#include "strake/tokenizers/bert_text.h"
#include "strake/tokenizers/gpt2_words.h"
#include "strake/tokenizers/text_buffer.h"
#include "strake/tokenizers/word_cache.h"

namespace strake::tokenizers {
namespace {

constexpr size_t kAllTokens = SIZE_MAX;
constexpr size_t kUsualText = size_t{1} << 20;

// Ids before they are appended to the caller's vector: written in blocks of eight, so room is made ahead.
class IdBuffer {
 public:
  void clear() { size_ = 0; }
  void reserve_more(size_t count) {
    const size_t needed = size_ + count + WordCache::kMostIds;
    if (needed > ids_.size()) ids_.resize(std::max(needed, ids_.size() + ids_.size() / 2));
  }
  // These need room made before.
  void push(int32_t id) { ids_[size_++] = id; }
  void push_entry(const WordCache::Entry& entry) {
    std::copy_n(entry.ids, WordCache::kMostIds, ids_.data() + size_);
    size_ += entry.count;
  }
  size_t size() const { return size_; }
  void truncate(size_t size, Direction side) {
    if (size >= size_) return;
    if (side == Direction::kLeft) std::copy_n(ids_.begin() + static_cast<int64_t>(size_ - size), size, ids_.begin());
    size_ = size;
  }
  const int32_t* data() const { return ids_.data(); }

 private:
  std::vector<int32_t> ids_ = std::vector<int32_t>(1024);
  size_t size_ = 0;
};

// A template as FastEncoder uses it.
struct FlatTemplate {
  FlatTemplate(const Template& parts, bool is_pair) : parts(parts) {
    bool seen_one = false;
    for (const TemplatePart& part : parts) {
      added += part.ids.size();
      require(part.type_id == 0 || part.type_id == 1, ErrorKind::kConfig, "type id {} in a template is not supported",
              part.type_id);
      require(part.type_id == 1 || !seen_one, ErrorKind::kConfig,
              "a template whose type ids return to 0 is not supported");
      require(part.type_id == 0 || is_pair, ErrorKind::kConfig,
              "type id 1 in a template for one text is not supported: it tells where the second text begins");
      seen_one |= part.type_id == 1;
    }
  }
  Template parts;
  size_t added = 0;
};

enum class Plan { kBert, kByteLevel, kGeneral };

Plan choose_plan(const TokenizerSpec& spec) {
  if (spec.pre_tokenizers.size() != 1) return Plan::kGeneral;
  const PreTokenizer& splitter = spec.pre_tokenizers[0];
  if (std::holds_alternative<WordPieceOptions>(spec.model)) {
    const bool bert = spec.normalizers.size() == 1 && std::holds_alternative<BertNormalizer>(spec.normalizers[0]) &&
                      std::holds_alternative<BertPreTokenizer>(splitter);
    return bert ? Plan::kBert : Plan::kGeneral;
  }
  const auto* byte_level = std::get_if<ByteLevelSplit>(&splitter);
  return spec.normalizers.empty() && byte_level && byte_level->use_regex ? Plan::kByteLevel : Plan::kGeneral;
}

}  // namespace

class FastEncoder::Worker {
 public:
  explicit Worker(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)),
        single_(tokenizer_->spec().post_processor.single, false),
        pair_(tokenizer_->spec().post_processor.pair, true),
        plan_(choose_plan(tokenizer_->spec())),
        side_(tokenizer_->spec().truncation_side) {
    if (plan_ == Plan::kBert) bert_.emplace(std::get<BertNormalizer>(tokenizer_->spec().normalizers[0]));
    if (plan_ == Plan::kByteLevel)
      add_prefix_space_ = std::get<ByteLevelSplit>(tokenizer_->spec().pre_tokenizers[0]).add_prefix_space;
  }

  size_t encode(std::string_view text, std::optional<std::string_view> pair, std::optional<int64_t> max_length,
                std::vector<int32_t>& ids) {
    const FlatTemplate& parts = pair ? pair_ : single_;
    size_t room = kAllTokens;
    if (max_length) {
      const auto added = static_cast<int64_t>(parts.added);
      room = static_cast<size_t>(without_special_tokens({.max_length = *max_length}, added).max_length);
    }
    // One more id than there is room for shows that the text is longer.
    const bool needs_all = pair || room == kAllTokens || side_ == Direction::kLeft;
    encode_text(text, needs_all ? kAllTokens : room + 1, first_);
    second_.clear();
    if (pair) encode_text(*pair, kAllTokens, second_);
    was_cut_ = first_.size() + second_.size() > room;
    if (was_cut_) cut(room, pair.has_value());
    const size_t of_first = emit(parts, ids);
    if (text.size() + pair.value_or("").size() > kUsualText) release_scratch();
    return of_first;
  }

  bool was_cut() const { return was_cut_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  struct Waiting {
    std::string_view word;
    WordCache::Key key;  // unless the word is too long for the cache
  };

  // What a long text needed, some 40 bytes for each of its own: usual ones make do with little.
  void release_scratch() {
    first_ = second_ = IdBuffer();
    normalized_ = words_ = TextBuffer();
    sections_ = inner_sections_ = std::vector<Section>();
    tokens_ = std::vector<ModelToken>();
    scratch_ = BytePair::Scratch();
  }

  void cut(size_t room, bool is_pair) {
    if (!is_pair) return first_.truncate(room, side_);
    const auto [of_first, of_second] = longest_first(static_cast<int64_t>(first_.size()),
                                                     static_cast<int64_t>(second_.size()), static_cast<int64_t>(room));
    first_.truncate(static_cast<size_t>(of_first), side_);
    second_.truncate(static_cast<size_t>(of_second), side_);
  }

  size_t emit(const FlatTemplate& parts, std::vector<int32_t>& ids) const {
    size_t zeros = 0;
    for (const TemplatePart& part : parts.parts) {
      const size_t before = ids.size();
      if (part.kind == TemplatePart::Kind::kSpecial) {
        ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      } else {
        const IdBuffer& text = part.kind == TemplatePart::Kind::kFirst ? first_ : second_;
        ids.insert(ids.end(), text.data(), text.data() + text.size());
      }
      if (part.type_id == 0) zeros += ids.size() - before;
    }
    return zeros;
  }

  // Stops once there are at least `limit` ids.
  void encode_text(std::string_view text, size_t limit, IdBuffer& out) {
    out.clear();
    check_text(text);
    if (plan_ == Plan::kGeneral) return encode_general(text, limit, out);
    const AddedTokens& added = tokenizer_->added_tokens();
    if (added.raw().surely_absent(text)) return encode_section(text, limit, out);
    sections_.clear();
    added.raw().find(text, sections_);
    for (const Section& section : sections_) {
      if (out.size() >= limit) return;
      if (section.id < 0) {
        encode_section(text.substr(section.begin, section.end - section.begin), limit, out);
      } else {
        out.reserve_more(1);
        out.push(section.id);
      }
    }
  }

  void encode_general(std::string_view text, size_t limit, IdBuffer& out) {
    EncodeOptions options{.add_special_tokens = false, .overflow = false};
    if (limit != kAllTokens) options.truncation = Truncation{.max_length = static_cast<int64_t>(limit)};
    const Encoding encoding = tokenizer_->encode(text, std::nullopt, options);
    out.reserve_more(encoding.size());
    for (const int32_t id : encoding.ids) out.push(id);
  }

  // Text between the added tokens that are found in raw text.
  void encode_section(std::string_view section, size_t limit, IdBuffer& out) {
    for (size_t begin = 0; begin < section.size() && out.size() < limit;) {
      const size_t end = tokenizer_->cutter().part_end(section, begin);
      encode_part(section.substr(begin, end - begin), limit, out);
      begin = end;
    }
  }

  void encode_part(std::string_view section, size_t limit, IdBuffer& out) {
    if (plan_ == Plan::kBert) {
      bert_->normalize(section, normalized_);
      section = normalized_.view();
    }
    const TokenFinder& finder = tokenizer_->added_tokens().normalized();
    if (finder.surely_absent(section)) return encode_words(section, limit, out);
    inner_sections_.clear();
    finder.find(section, inner_sections_);
    for (const Section& inner : inner_sections_) {
      if (out.size() >= limit) return;
      if (inner.id < 0) {
        encode_words(section.substr(inner.begin, inner.end - inner.begin), limit, out);
      } else {
        out.reserve_more(1);
        out.push(inner.id);
      }
    }
  }

  void encode_words(std::string_view text, size_t limit, IdBuffer& out) {
    queued_ = 0;
    out.reserve_more(text.size() + 1);  // a token stands for at least one byte
    if (plan_ == Plan::kBert) {
      bert_->for_each_word(text, [&](const char* word, size_t length) {
        add_word(word, length, out);
        return out.size() < limit;
      });
      return flush_words(out);
    }
    words_.clear();
    words_.reserve_more(text.size() + 1);
    if (add_prefix_space_ && !text.empty() && !text.starts_with(' ')) words_.push(' ');
    words_.append(text);
    const std::string_view all = words_.view();
    for (size_t at = 0; at < all.size() && out.size() < limit;) {
      const size_t end = gpt2_.match_end(all, at);
      add_word(all.data() + at, end - at, out);
      at = end;
    }
    flush_words(out);
  }

  // Words wait in a short queue while their places in the cache are loaded: memory latency is most of the time
  // otherwise. WordCache::kReadAhead bytes from `word` on must be readable, and stay so until flush_words().
  void add_word(const char* word, size_t length, IdBuffer& out) {
    Waiting& waiting = queue_[queued_++];
    waiting.word = {word, length};
    if (length <= WordCache::kLongestWord) {
      waiting.key = WordCache::key(word, length);
      cache_.prefetch(waiting.key);
    }
    if (queued_ == queue_.size()) flush_words(out);
  }

  void flush_words(IdBuffer& out) {
    for (size_t i = 0; i < queued_; ++i) encode_word(queue_[i], out);
    queued_ = 0;
  }

  void encode_word(const Waiting& waiting, IdBuffer& out) {
    if (waiting.word.size() > WordCache::kLongestWord) return encode_unknown_word(waiting.word, out);
    if (const WordCache::Entry* known = cache_.find(waiting.key)) return out.push_entry(*known);
    const size_t before = out.size();
    encode_unknown_word(waiting.word, out);
    cache_.insert(waiting.key, out.data() + before, out.size() - before);
  }

  void encode_unknown_word(std::string_view word, IdBuffer& out) {
    tokens_.clear();
    if (const WordPiece* model = tokenizer_->word_piece()) {
      model->tokenize(word, tokens_);
    } else {
      tokenizer_->byte_pair()->tokenize(word, scratch_, tokens_);
    }
    for (const ModelToken& token : tokens_) out.push(token.id);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  FlatTemplate single_, pair_;
  Plan plan_;
  Direction side_;
  std::optional<BertText> bert_;
  Gpt2Words gpt2_;
  bool add_prefix_space_ = false;
  bool was_cut_ = false;

  WordCache cache_;
  std::array<Waiting, 16> queue_{};
  size_t queued_ = 0;
  IdBuffer first_, second_;
  TextBuffer normalized_, words_;
  std::vector<Section> sections_, inner_sections_;
  std::vector<ModelToken> tokens_;
  BytePair::Scratch scratch_;
};

FastEncoder::FastEncoder(std::shared_ptr<const Tokenizer> tokenizer)
    : worker_(std::make_unique<Worker>(std::move(tokenizer))) {}
FastEncoder::~FastEncoder() = default;
FastEncoder::FastEncoder(FastEncoder&&) noexcept = default;
FastEncoder& FastEncoder::operator=(FastEncoder&&) noexcept = default;

size_t FastEncoder::encode(std::string_view text, std::optional<std::string_view> pair,
                           std::optional<int64_t> max_length, std::vector<int32_t>& ids) {
  return worker_->encode(text, pair, max_length, ids);
}

bool FastEncoder::was_cut() const { return worker_->was_cut(); }

const Tokenizer& FastEncoder::tokenizer() const { return worker_->tokenizer(); }

}  // namespace strake::tokenizers
