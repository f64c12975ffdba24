#include "strake/rows/label_map.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "strake/core/error.h"
#include "strake/core/parse_integer.h"
#include "strake/data/class_names.h"
#include "strake/data/label_lists.h"
#include "strake/data/number_text.h"

namespace strake::rows {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "'" : ", '") + printable(names[i]) + "'";
  return names.size() > kShown ? fmt::format("{}, ... ({} in all)", text, names.size()) : text;
}

std::string name_of(const std::string& number, const std::vector<std::string>& names, int64_t row,
                    const data::Table& table) {
  const auto index = parse_integer<size_t>(number);
  if (!index || *index >= names.size()) {
    fail(ErrorKind::kData, "{}: label {} is no number of the {} classes that the file's metadata names: {}",
         table.where(row), printable(number), names.size(), some_of(names));
  }
  return names[*index];
}

}  // namespace

LabelMap LabelMap::classes(std::vector<std::string> names, models::ProblemType problem, Numbered numbered) {
  LabelMap map;
  map.problem_ = problem;
  map.names_ = std::move(names);
  map.generic_names_ = true;
  for (size_t i = 0; i < map.names_.size(); ++i) {
    map.ids_[map.names_[i]] = static_cast<int32_t>(i);
    map.generic_names_ = map.generic_names_ && map.names_[i] == fmt::format("LABEL_{}", i);
  }
  const auto is_number = [](const std::string& name) { return parse_integer<int64_t>(name).has_value(); };
  map.takes_ids_ = numbered == Numbered::kYes && std::ranges::none_of(map.names_, is_number);
  return map;
}

LabelMap LabelMap::numbers() {
  LabelMap map;
  map.problem_ = models::ProblemType::kRegression;
  map.names_ = {"LABEL_0"};
  return map;
}

bool are_integers(const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [](const std::string& name) { return parse_integer<int64_t>(name).has_value(); });
}

void require_one_number(const models::EncoderConfig& config) {
  require(config.problem() != models::ProblemType::kRegression || config.num_labels() == 1, ErrorKind::kConfig,
          "regression with {} labels is not supported, only with one", config.num_labels());
}

LabelMap LabelMap::of(const models::EncoderConfig& config) {
  if (config.problem() == models::ProblemType::kRegression) {
    require_one_number(config);
    return numbers();
  }
  std::set<std::string> seen;
  for (const std::string& name : config.labels) {
    require(seen.insert(name).second, ErrorKind::kConfig,
            "the model's id2label gives the name '{}' to two labels: which one a row means cannot be told",
            printable(name));
  }
  LabelMap map = classes(config.labels, config.problem(), Numbered::kYes);
  map.is_of_model_ = true;
  return map;
}

namespace {

float number_of(const data::LabelColumn& values, int64_t row, const data::Table& table) {
  const auto number = static_cast<float>(values.number(row));
  if (!std::isfinite(number)) {
    fail(ErrorKind::kData, "{}: label {} is out of the range of fp32, in which regressions are trained",
         table.where(row), values.text(row));
  }
  return number;
}

}  // namespace

std::vector<Label> LabelMap::map(const data::Table& table, const std::string& column, int64_t first_row) const {
  std::vector<Label> labels(static_cast<size_t>(table.num_rows() - first_row));
  if (problem_ == models::ProblemType::kMultiLabelClassification) {
    const auto lists = this->lists(table, column);
    for (int64_t row = first_row; row < table.num_rows(); ++row) {
      labels[static_cast<size_t>(row - first_row)] = classes_of(lists[static_cast<size_t>(row)], row, table);
    }
    return labels;
  }
  const data::LabelColumn values = table.labels(column);
  const std::vector<std::string> declared = declared_names(table, column);
  for (int64_t row = first_row; row < table.num_rows(); ++row) {
    if (values.is_null(row)) fail(ErrorKind::kData, "{}: the row has no label", table.where(row));
    Label& label = labels[static_cast<size_t>(row - first_row)];
    if (problem_ == models::ProblemType::kRegression) {
      label = number_of(values, row, table);
    } else {
      const std::string text = values.text(row);
      label = id_of(declared.empty() ? text : name_of(text, declared, row, table), row, table);
    }
  }
  return labels;
}

std::vector<std::vector<std::string>> LabelMap::lists(const data::Table& table, const std::string& column) const {
  auto lists = data::label_lists(table, column);
  const std::vector<std::string> declared = declared_names(table, column);
  if (declared.empty()) return lists;
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    for (std::string& label : lists[static_cast<size_t>(row)]) label = name_of(label, declared, row, table);
  }
  return lists;
}

std::vector<std::string> LabelMap::declared_names(const data::Table& table, const std::string& column) const {
  std::vector<std::string> names = data::class_names(table, column);
  const auto is_known = [&](const std::string& name) { return ids_.contains(name); };
  return std::ranges::any_of(names, is_known) ? names : std::vector<std::string>();
}

Label LabelMap::classes_of(const std::vector<std::string>& names, int64_t row, const data::Table& table) const {
  std::vector<int32_t> ids = ids_of(names, row, table);
  std::ranges::sort(ids);
  const auto twice = std::ranges::unique(ids);
  // [0, 1, 0], as other programs want it, would be labels 0 and 1.
  if (!twice.empty() && are_integers(names)) {
    fail(
        ErrorKind::kData,
        "{}: the labels [{}] have a number twice; they are to name the labels that the row has, not to say of each one "
        "whether",
        table.where(row), printable(fmt::format("{}", fmt::join(names, ", ")), 60));
  }
  ids.erase(twice.begin(), twice.end());
  return ids;
}

std::optional<int32_t> LabelMap::find(const std::string& name) const {
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  const auto integer = parse_integer<int64_t>(data::plain_number(name));
  if (!integer) return std::nullopt;
  if (const auto found = ids_.find(fmt::to_string(*integer)); found != ids_.end()) return found->second;
  const bool is_id = takes_ids_ && *integer >= 0 && *integer < std::ssize(names_);
  return is_id ? std::optional(static_cast<int32_t>(*integer)) : std::nullopt;
}

int32_t LabelMap::id_of(const std::string& name, int64_t row, const data::Table& table) const {
  if (const auto id = find(name)) return *id;
  fail(ErrorKind::kData, "{}: label '{}' is none of {}: {}{}", table.where(row), printable(name),
       is_of_model_ ? "the model's" : "those of the training data", some_of(names_),
       is_of_model_ ? " (strake train --ignore_mismatched_sizes makes a head for others)" : "");
}

std::vector<int32_t> LabelMap::ids_of(const std::vector<std::string>& names, int64_t row,
                                      const data::Table& table) const {
  std::vector<int32_t> ids;
  for (const std::string& name : names) ids.push_back(id_of(name, row, table));
  return ids;
}

std::optional<models::ProblemType> parse_problem_type_flag(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::optional<models::ProblemType> problem = models::find_problem_type(text);
  require(problem.has_value(), ErrorKind::kUsage, "--problem_type {} is none of {}", printable(text),
          models::kProblemTypeNames);
  return problem;
}

data::TokenLabelKind label_kind_of(models::ProblemType problem) {
  switch (problem) {
    case models::ProblemType::kRegression:
      return data::TokenLabelKind::kNumber;
    case models::ProblemType::kMultiLabelClassification:
      return data::TokenLabelKind::kClasses;
    case models::ProblemType::kSingleLabelClassification:
      break;
  }
  return data::TokenLabelKind::kClass;
}

std::optional<models::ProblemType> problem_of(data::TokenLabelKind kind) {
  switch (kind) {
    case data::TokenLabelKind::kNone:
    case data::TokenLabelKind::kTokenClasses:
    case data::TokenLabelKind::kSpan:
      return std::nullopt;
    case data::TokenLabelKind::kNumber:
      return models::ProblemType::kRegression;
    case data::TokenLabelKind::kClasses:
      return models::ProblemType::kMultiLabelClassification;
    case data::TokenLabelKind::kClass:
      break;
  }
  return models::ProblemType::kSingleLabelClassification;
}

}  // namespace strake::rows
