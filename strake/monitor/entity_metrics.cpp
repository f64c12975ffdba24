#include "strake/monitor/entity_metrics.h"

#include <algorithm>
#include <string_view>

#include "strake/core/error.h"

namespace strake::monitor {
namespace {

constexpr char kOutside = 'O';

bool is_inside(char tag) { return tag != kOutside && tag != '.'; }

// Between the labels of two words. `of_one_type`: both have it.
bool ends_entity(char before, char tag, bool of_one_type) {
  if (before == 'E' || before == 'S') return true;
  if ((before == 'B' || before == 'I') && (tag == 'B' || tag == 'S' || tag == kOutside)) return true;
  return is_inside(before) && !of_one_type;
}

bool begins_entity(char before, char tag, bool of_one_type) {
  if (tag == 'B' || tag == 'S') return true;
  const bool is_after_end = before == 'E' || before == 'S' || before == kOutside;
  if ((tag == 'E' || tag == 'I') && is_after_end) return true;
  return is_inside(tag) && !of_one_type;
}

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

NamedValues EntityMetrics::named_values() const {
  return {{"precision", precision}, {"recall", recall}, {"f1", f1}, {"accuracy", accuracy}};
}

EntityCounter::EntityCounter(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    require(!name.empty(), ErrorKind::kConfig, "a label of tokens has no name");
    const size_t dash = name.find('-', 1);
    std::string type = dash == std::string::npos ? name.substr(1) : name.substr(dash + 1);
    labels_.push_back({.tag = name.front(), .type = type.empty() ? "_" : std::move(type)});
  }
}

std::vector<EntityCounter::Entity> EntityCounter::entities(std::span<const int32_t> labels, int64_t& begin) const {
  static const Label kNothing{.tag = kOutside, .type = "_"};
  std::vector<Entity> found;
  char before = kOutside;
  std::string_view type_before;
  if (position_ > 0) type_before = kNothing.type;
  for (int64_t i = 0; i <= std::ssize(labels); ++i) {
    const bool is_behind = i == std::ssize(labels);
    const Label& label = is_behind ? kNothing : labels_[static_cast<size_t>(labels[static_cast<size_t>(i)])];
    const bool of_one_type = label.type == type_before;
    if (ends_entity(before, label.tag, of_one_type)) found.push_back({begin, position_ + i - 1, type_before});
    if (begins_entity(before, label.tag, of_one_type)) begin = position_ + i;
    before = label.tag;
    type_before = label.type;
  }
  return found;
}

void EntityCounter::add(const LabelledText& text) {
  require(text.predicted.size() == text.actual.size(), ErrorKind::kData, "{} labels were predicted of {}",
          text.predicted.size(), text.actual.size());
  for (const auto& labels : {text.predicted, text.actual}) {
    const auto unknown = std::ranges::find_if(
        labels, [&](int32_t label) { return label < 0 || static_cast<size_t>(label) >= labels_.size(); });
    require(unknown == labels.end(), ErrorKind::kData, "label {} is none of {}", unknown == labels.end() ? 0 : *unknown,
            labels_.size());
  }
  labels_seen_ += std::ssize(text.actual);
  for (size_t i = 0; i < text.actual.size(); ++i) labels_right_ += text.predicted[i] == text.actual[i] ? 1 : 0;
  const std::vector<Entity> predicted = entities(text.predicted, predicted_begin_);
  const std::vector<Entity> actual = entities(text.actual, actual_begin_);
  position_ += std::ssize(text.actual) + 1;
  predicted_ += std::ssize(predicted);
  actual_ += std::ssize(actual);
  // Both are in order of their ends.
  auto next = actual.begin();
  for (const Entity& entity : predicted) {
    while (next != actual.end() && next->end < entity.end) ++next;
    if (next != actual.end() && *next == entity) ++right_;
  }
}

EntityMetrics EntityCounter::metrics() const {
  require(labels_seen_ > 0, ErrorKind::kData, "no word has a label");
  EntityMetrics metrics{.precision = ratio(right_, predicted_),
                        .recall = ratio(right_, actual_),
                        .accuracy = ratio(labels_right_, labels_seen_)};
  const double sum = metrics.precision + metrics.recall;
  metrics.f1 = sum == 0 ? 0 : 2 * metrics.precision * metrics.recall / sum;
  return metrics;
}

}  // namespace strake::monitor
