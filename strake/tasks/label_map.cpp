#include "strake/tasks/label_map.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "strake/core/error.h"

namespace strake::tasks {
namespace {

constexpr size_t kMostClasses = 100'000;

std::optional<int64_t> parse_integer(const std::string& text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> sorted_names(const std::set<std::string>& seen) {
  std::vector<std::string> names(seen.begin(), seen.end());
  const bool integers =
      std::ranges::all_of(names, [](const std::string& name) { return parse_integer(name).has_value(); });
  if (integers) std::ranges::sort(names, {}, [](const std::string& name) { return *parse_integer(name); });
  return names;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "'" : ", '") + printable(names[i]) + "'";
  return names.size() > kShown ? fmt::format("{}, ... ({} in all)", text, names.size()) : text;
}

}  // namespace

LabelMap LabelMap::classes(std::vector<std::string> names) {
  LabelMap map;
  map.names_ = std::move(names);
  map.generic_names_ = true;
  for (size_t i = 0; i < map.names_.size(); ++i) {
    map.ids_[map.names_[i]] = static_cast<int32_t>(i);
    map.generic_names_ = map.generic_names_ && map.names_[i] == fmt::format("LABEL_{}", i);
  }
  return map;
}

LabelMap LabelMap::numbers() {
  LabelMap map;
  map.problem_ = models::ProblemType::kRegression;
  map.names_ = {"LABEL_0"};
  return map;
}

LabelMap LabelMap::of(const models::EncoderConfig& config) {
  if (config.problem() != models::ProblemType::kRegression) return classes(config.labels);
  require(config.num_labels() == 1, ErrorKind::kConfig, "regression with {} labels is not supported, only with one",
          config.num_labels());
  return numbers();
}

LabelMap LabelMap::collect(const data::TableSource& source, const std::string& column,
                           std::optional<models::ProblemType> problem) {
  data::TableSource only_labels = source;
  only_labels.columns = {column};
  data::TableReader reader(only_labels);
  std::set<std::string> seen;
  while (const auto table = reader.next()) {
    const data::LabelColumn labels = table->labels(column);
    if (!problem && labels.kind() == data::LabelKind::kNumber) problem = models::ProblemType::kRegression;
    if (problem == models::ProblemType::kRegression) return numbers();
    for (int64_t row = 0; row < labels.size(); ++row) {
      require(!labels.is_null(row), ErrorKind::kData, "{}: column '{}' has no label", table->where(row), column);
      seen.insert(labels.text(row));
      require(seen.size() <= kMostClasses, ErrorKind::kData,
              "{}: column '{}' has more than {} different labels: is it the label column? For numbers pass "
              "--problem_type regression",
              source.paths.front().string(), column, kMostClasses);
    }
  }
  require(seen.size() >= 2, ErrorKind::kData, "{}: column '{}' has {} different labels; a classifier needs at least 2",
          source.paths.front().string(), column, seen.size());
  return classes(sorted_names(seen));
}

Label LabelMap::map(const data::LabelColumn& column, int64_t row, const data::Table& table) const {
  require(!column.is_null(row), ErrorKind::kData, "{}: the row has no label", table.where(row));
  if (problem_ == models::ProblemType::kRegression) return static_cast<float>(column.number(row));
  const std::string text = column.text(row);
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  if (generic_names_) {
    const auto id = parse_integer(text);
    if (id && *id >= 0 && *id < static_cast<int64_t>(names_.size())) return static_cast<int32_t>(*id);
  }
  fail(ErrorKind::kData, "{}: label '{}' is none of the model's: {}", table.where(row), printable(text),
       some_of(names_));
}

std::optional<models::ProblemType> parse_problem_type_flag(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (text == "regression") return models::ProblemType::kRegression;
  if (text == "single_label_classification") return models::ProblemType::kSingleLabelClassification;
  fail(ErrorKind::kUsage, "--problem_type {} is neither regression nor single_label_classification", text);
}

}  // namespace strake::tasks
