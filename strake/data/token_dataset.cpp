#include "strake/data/token_dataset.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"

namespace strake::data {
namespace {

std::string_view describe(TokenLabelKind kind) {
  constexpr std::string_view kNames[] = {"no label",          "a class",           "a number",
                                         "a list of classes", "classes of tokens", "a span of tokens"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

TokenLabelKind kind_of_label(const TokenRow& row) { return static_cast<TokenLabelKind>(row.label.index()); }

void check_token_row(const TokenRow& row, TokenLabelKind expected, const std::string& source) {
  constexpr size_t kLongest = std::numeric_limits<int32_t>::max();
  require(row.ids.size() <= kLongest, ErrorKind::kData, "{}: the sequence of row {} has {} tokens", source, row.row,
          row.ids.size());
  require(row.row >= 0, ErrorKind::kData, "{}: row number {} is negative", source, row.row);
  const auto negative = std::ranges::find_if(row.ids, [](int32_t id) { return id < 0; });
  require(negative == row.ids.end(), ErrorKind::kData, "{}: row {} has the negative token id {}", source, row.row,
          negative == row.ids.end() ? 0 : *negative);
  const auto length = static_cast<int32_t>(row.ids.size());
  const int32_t second = row.second_begin.value_or(length);
  require(second >= 0 && second <= length, ErrorKind::kData, "{}: row {} begins its second part at token {} of {}",
          source, row.row, second, length);
  require(kind_of_label(row) == expected, ErrorKind::kData, "{}: row {} has {} where rows before it have {}", source,
          row.row, describe(kind_of_label(row)), describe(expected));
  if (const auto* class_label = std::get_if<int32_t>(&row.label)) {
    require(*class_label >= 0, ErrorKind::kData, "{}: row {} has the negative class {}", source, row.row, *class_label);
  }
  if (const auto* classes = std::get_if<std::span<const int32_t>>(&row.label)) {
    require(classes->empty() || classes->front() >= 0, ErrorKind::kData, "{}: row {} has the negative class {}", source,
            row.row, classes->empty() ? 0 : classes->front());
    const auto late = std::ranges::adjacent_find(*classes, std::ranges::greater_equal());
    require(late == classes->end(), ErrorKind::kData, "{}: the classes of row {} do not ascend: {} is one of them",
            source, row.row, late == classes->end() ? 0 : *late);
  }
  if (const auto* classes = std::get_if<TokenClasses>(&row.label)) {
    const auto& of_tokens = classes->of_tokens;
    const bool is_sound = of_tokens.size() == row.ids.size() &&
                          std::ranges::all_of(of_tokens, [](int32_t label) { return label >= kNoClass; });
    require(is_sound, ErrorKind::kData, "{}: row {} does not have one class for each of its {} tokens", source, row.row,
            row.ids.size());
  }
  if (const auto* span = std::get_if<TokenSpan>(&row.label)) {
    require(span->first >= 0 && span->first <= span->last && span->last < length, ErrorKind::kData,
            "{}: row {} has a span of tokens {} to {} of {}", source, row.row, span->first, span->last, length);
  }
}

int64_t TokenDataset::num_labelled(int64_t i) const {
  return std::ranges::count_if(token_classes(i), [](int32_t label) { return label != kNoClass; });
}

void TokenDataset::renumber_classes(std::span<const int32_t> ids) {
  for (int32_t& label : class_labels_) {
    require(static_cast<size_t>(label) < ids.size(), ErrorKind::kData, "class {} is none of {}", label, ids.size());
    label = ids[static_cast<size_t>(label)];
  }
  for (size_t i = 0; i + 1 < class_offsets_.size(); ++i) {
    std::ranges::sort(class_labels_.begin() + class_offsets_[i], class_labels_.begin() + class_offsets_[i + 1]);
  }
}

void TokenDataset::set_num_classes(int64_t count) {
  for (int64_t i = 0; i < size(); ++i) {
    if (!classes(i).empty() && classes(i).back() >= count) {
      fail(ErrorKind::kData, "row {} has class {} of {}", i, classes(i).back(), count);
    }
  }
  num_classes_ = count;
}

void TokenDataset::keep_first(int64_t count) {
  if (count >= size()) return;
  tokens_.resize(index(offsets_[index(count)]));
  offsets_.resize(index(count) + 1);
  if (has_pairs()) {
    second_begin_.resize(index(count));
    int64_t pairs = 0;
    for (int64_t i = 0; i < count; ++i) pairs += second_begin(i) < length(i) ? 1 : 0;
    if (pairs == 0) second_begin_.clear();
  }
  if (label_kind_ == TokenLabelKind::kClass) class_labels_.resize(index(count));
  if (label_kind_ == TokenLabelKind::kClasses) {
    class_labels_.resize(index(class_offsets_[index(count)]));
    class_offsets_.resize(index(count) + 1);
  }
  if (label_kind_ == TokenLabelKind::kTokenClasses) class_labels_.resize(tokens_.size());
  if (label_kind_ == TokenLabelKind::kNumber) number_labels_.resize(index(count));
  if (label_kind_ == TokenLabelKind::kSpan) spans_.resize(index(count));
  max_token_id_ = tokens_.empty() ? -1 : std::ranges::max(tokens_);
}

uint32_t TokenDataset::fingerprint() const {
  const auto kind = static_cast<uint32_t>(label_kind_);
  uint32_t crc = crc32c(&kind, sizeof(kind));
  const auto add = [&crc](const auto& values) {
    crc = crc32c(values.data(), values.size() * sizeof(values.front()), crc);
  };
  add(tokens_);
  add(offsets_);
  add(second_begin_);
  add(class_labels_);
  add(class_offsets_);
  add(number_labels_);
  add(spans_);
  return crc;
}

void TokenDatasetBuilder::reserve(int64_t sequences, int64_t tokens) {
  dataset_.offsets_.reserve(static_cast<size_t>(sequences) + 1);
  dataset_.tokens_.reserve(static_cast<size_t>(tokens));
}

void TokenDatasetBuilder::append(const TokenRow& row) {
  TokenDataset& set = dataset_;
  if (set.size() == 0) set.label_kind_ = kind_of_label(row);
  check_token_row(row, set.label_kind_, source_);
  const auto length = static_cast<int32_t>(row.ids.size());
  const int32_t second = row.second_begin.value_or(length);
  if (second < length && set.second_begin_.empty()) {
    for (int64_t i = 0; i < set.size(); ++i) set.second_begin_.push_back(static_cast<int32_t>(set.length(i)));
  }
  if (second < length || !set.second_begin_.empty()) set.second_begin_.push_back(second);
  set.tokens_.insert(set.tokens_.end(), row.ids.begin(), row.ids.end());
  set.offsets_.push_back(static_cast<int64_t>(set.tokens_.size()));
  for (const int32_t id : row.ids) set.max_token_id_ = std::max(set.max_token_id_, id);
  if (const auto* class_label = std::get_if<int32_t>(&row.label)) set.class_labels_.push_back(*class_label);
  if (const auto* number = std::get_if<float>(&row.label)) set.number_labels_.push_back(*number);
  if (const auto* classes = std::get_if<std::span<const int32_t>>(&row.label)) {
    if (set.class_offsets_.empty()) set.class_offsets_.push_back(0);
    set.class_labels_.insert(set.class_labels_.end(), classes->begin(), classes->end());
    set.class_offsets_.push_back(std::ssize(set.class_labels_));
  }
  if (const auto* classes = std::get_if<TokenClasses>(&row.label)) {
    set.class_labels_.insert(set.class_labels_.end(), classes->of_tokens.begin(), classes->of_tokens.end());
  }
  if (const auto* span = std::get_if<TokenSpan>(&row.label)) set.spans_.push_back(*span);
}

TokenDataset TokenDatasetBuilder::build() { return std::exchange(dataset_, TokenDataset()); }

}  // namespace strake::data
