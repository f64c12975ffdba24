#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace strake::data {

// kClasses: any number of classes.
enum class TokenLabelKind { kNone, kClass, kNumber, kClasses, kTokenClasses, kSpan };

inline constexpr int32_t kNoClass = -1;  // of a token

// Some tokens of a sequence that follow each other.
struct TokenSpan {
  int32_t first = 0;
  int32_t last = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Tokenized sequences with their labels in memory: flat, without padding. Thread-safe once built: rank threads share
// one.
class TokenDataset {
 public:
  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t total_tokens() const { return offsets_.back(); }
  // Largest id, -1 if there are no tokens: callers compare it with the vocabulary before using ids as indices.
  int32_t max_token_id() const { return max_token_id_; }

  std::span<const int32_t> tokens(int64_t i) const {
    return std::span(tokens_).subspan(index(offsets_[index(i)]), index(length(i)));
  }
  int64_t length(int64_t i) const { return offsets_[index(i) + 1] - offsets_[index(i)]; }
  // size() + 1 values, as BatchPlan takes them.
  std::span<const int64_t> offsets() const { return offsets_; }
  // Index of the first token of type 1; length(i) if there is none.
  int32_t second_begin(int64_t i) const {
    return second_begin_.empty() ? static_cast<int32_t>(length(i)) : second_begin_[index(i)];
  }
  bool has_pairs() const { return !second_begin_.empty(); }

  TokenLabelKind label_kind() const { return label_kind_; }
  int32_t class_label(int64_t i) const { return class_labels_[index(i)]; }  // kClass
  float number_label(int64_t i) const { return number_labels_[index(i)]; }  // kNumber
  // kClasses: ascending.
  std::span<const int32_t> classes(int64_t i) const {
    const int64_t begin = class_offsets_[index(i)];
    return std::span(class_labels_).subspan(index(begin), index(class_offsets_[index(i) + 1] - begin));
  }
  // kTokenClasses: of each token its class, or kNoClass; and how many tokens have one.
  std::span<const int32_t> token_classes(int64_t i) const {
    return std::span(class_labels_).subspan(index(offsets_[index(i)]), index(length(i)));
  }
  int64_t num_labelled(int64_t i) const;
  TokenSpan span(int64_t i) const { return spans_[index(i)]; }  // kSpan
  // Class c becomes ids[c]. Error (kData) for a class that `ids` lacks.
  void renumber_classes(std::span<const int32_t> ids);
  // kClasses: how many there are. Error (kData) for a row with another one.
  void set_num_classes(int64_t count);
  int64_t num_classes() const { return num_classes_; }  // 0 until it is set
  // Leaves out what comes behind the first `count` sequences, as if they had never been added.
  void keep_first(int64_t count);
  // CRC-32C of all of it: equal for equal datasets, whether made from text or from token files. Reads every byte.
  uint32_t fingerprint() const;

 private:
  friend class TokenDatasetBuilder;
  TokenDataset() = default;
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  std::vector<int32_t> tokens_;
  std::vector<int64_t> offsets_{0};
  std::vector<int32_t> second_begin_;  // empty as long as no sequence has tokens of type 1
  TokenLabelKind label_kind_ = TokenLabelKind::kNone;
  std::vector<int32_t> class_labels_;   // of all rows, one after the other
  std::vector<int64_t> class_offsets_;  // kClasses: size() + 1
  int64_t num_classes_ = 0;
  std::vector<float> number_labels_;
  std::vector<TokenSpan> spans_;
  int32_t max_token_id_ = -1;
};

// Of each token of a sequence its class, or kNoClass.
struct TokenClasses {
  std::span<const int32_t> of_tokens;
};

// One sequence on its way into a dataset or token file.
struct TokenRow {
  std::span<const int32_t> ids = {};
  std::optional<int32_t> second_begin = std::nullopt;  // none: all tokens are of type 0
  // Of one kind for all rows: a class, a number, classes, ascending, the classes of all tokens, or a span.
  std::variant<std::monostate, int32_t, float, std::span<const int32_t>, TokenClasses, TokenSpan> label = {};
  int64_t row = 0;  // of the input; named in errors and kept in token files
};

// Checks and describes a row: Error (kData) starting with `source` for negative ids, row or class, classes that do not
// ascend or are not those of all tokens, a span of tokens that are not there, a second_begin outside [0, number of
// ids], or another kind of label than `expected`.
void check_token_row(const TokenRow& row, TokenLabelKind expected, const std::string& source);
TokenLabelKind kind_of_label(const TokenRow& row);

class TokenDatasetBuilder {
 public:
  // `source` is named in errors.
  explicit TokenDatasetBuilder(std::string source) : source_(std::move(source)) {}

  void reserve(int64_t sequences, int64_t tokens);
  void append(const TokenRow& row);
  TokenDataset build();  // leaves the builder empty

 private:
  std::string source_;
  TokenDataset dataset_;
};

}  // namespace strake::data
