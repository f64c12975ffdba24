#include "strake/rows/collect_labels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/parse_integer.h"
#include "strake/data/class_names.h"
#include "strake/data/label_lists.h"
#include "strake/data/number_text.h"

namespace strake::rows {
namespace {

constexpr size_t kMostClasses = 100'000;

bool is_finite_number(const std::string& text) {
  const std::optional<double> value = data::parse_number(text);
  return value && std::isfinite(*value);
}

// The different values of a label column.
class SeenLabels {
 public:
  // All values of an untyped column (CSV) are text: what they are is seen from all of them.
  explicit SeenLabels(bool untyped) : is_untyped_(untyped), may_be_numbers_(untyped) {}

  void add(const std::string& text) {
    if (names_.size() <= kMostClasses && !names_.insert(text).second) return;
    const bool is_number = is_finite_number(text);
    if (is_number) ++num_numbers_;
    may_be_numbers_ = may_be_numbers_ && is_number;
    any_fraction_ = any_fraction_ || (is_number && text.find_first_of(".eE") != std::string::npos);
  }
  // As pandas tells floating point columns from integer ones.
  bool are_decimals() const { return may_be_numbers_ && any_fraction_; }
  // Decimal numbers but for a few labels, which are likely to be mistakes: one of those, else null.
  const std::string* odd_one() const {
    constexpr size_t kFewClasses = 20;
    const bool is_mostly_numbers = any_fraction_ && 2 * num_numbers_ > names_.size() && num_numbers_ < names_.size();
    if (!is_untyped_ || !is_mostly_numbers || names_.size() <= kFewClasses) return nullptr;
    return &*std::ranges::find_if_not(names_, is_finite_number);
  }
  bool are_too_many() const { return names_.size() > kMostClasses && !may_be_numbers_; }
  const std::set<std::string>& names() const { return names_; }

 private:
  std::set<std::string> names_;  // at most kMostClasses and one more
  size_t num_numbers_ = 0;
  bool is_untyped_;
  bool may_be_numbers_;
  bool any_fraction_ = false;
};

bool is_untyped(const data::TableSource& source, const data::TableReader& reader) {
  const data::TableFormat format = source.format.value_or(data::format_of(reader.files().front()));
  return format == data::TableFormat::kCsv || format == data::TableFormat::kTsv;
}

// The classes of a column of CSV that holds integers alone, each named once; nothing of others.
std::optional<std::vector<std::string>> integers_of_csv(const std::set<std::string>& seen) {
  std::set<int64_t> integers;
  for (const std::string& name : seen) {
    const std::optional<int64_t> integer = parse_integer<int64_t>(data::plain_number(name));
    if (!integer) return std::nullopt;
    integers.insert(*integer);
  }
  std::vector<std::string> names;
  for (const int64_t integer : integers) names.push_back(fmt::to_string(integer));
  return names;
}

std::vector<std::string> sorted_names(const std::set<std::string>& seen) {
  std::vector<std::string> names(seen.begin(), seen.end());
  if (are_integers(names))
    std::ranges::sort(names, {}, [](const std::string& name) { return *parse_integer<int64_t>(name); });
  return names;
}

void require_few(bool few, const std::string& file, const std::string& column) {
  require(few, ErrorKind::kData,
          "{}: column '{}' has more than {} different labels: is it the label column? For numbers pass "
          "--problem_type regression",
          file, column, kMostClasses);
}

// Lists that say of every label whether a text has it, as Transformers' models take them, instead of naming those that
// it has.
class Indicators {
 public:
  void add(const std::vector<std::string>& list) {
    static constexpr std::array<std::string_view, 4> kDecisions{"0", "1", "false", "true"};
    const auto is_decision = [](const std::string& label) {
      return std::ranges::find(kDecisions, label) != kDecisions.end();
    };
    if (!width_) {
      width_ = list.size();
      first_ = list;
    }
    are_there_ = are_there_ && list.size() == *width_ && std::ranges::all_of(list, is_decision);
    // Nobody names one label twice, and few the same two in both orders.
    names_nothing_ = names_nothing_ || (list.size() == 2 && (list[0] == list[1] || list != first_));
  }
  // Lists of more labels than there are decisions, or of two that make no sense as names.
  bool are_there() const { return are_there_ && (width_.value_or(0) > 2 || (width_ == 2 && names_nothing_)); }

 private:
  std::optional<size_t> width_;
  std::vector<std::string> first_;
  bool are_there_ = true;
  bool names_nothing_ = false;
};

// Where a label is that Transformers' losses pass over.
class IgnoredLabel {
 public:
  void look_at(const std::string& label, const data::Table& table, int64_t row) {
    if (where_.empty() && label == "-100") where_ = table.where(row);
  }
  // Error (kData) if it would be one of the classes of a column of integers.
  void require_none(const std::vector<std::string>& names) const {
    require(where_.empty() || !are_integers(names), ErrorKind::kData,
            "{}: label -100, which losses of other programs pass over, would be a class of its own: leave it out",
            where_);
  }

 private:
  std::string where_;
};

std::vector<std::string> collect_names(data::TableReader& reader, const std::string& column,
                                       const std::function<void(const std::vector<std::string>&)>& also) {
  SeenLabels seen(false);
  IgnoredLabel ignored;
  while (const auto table = reader.next()) {
    int64_t row = 0;
    for (const std::vector<std::string>& labels : data::label_lists(*table, column)) {
      for (const std::string& label : labels) {
        seen.add(label);
        ignored.look_at(label, *table, row);
      }
      also(labels);
      ++row;
    }
    require_few(!seen.are_too_many(), reader.files().front().string(), column);
  }
  std::vector<std::string> names = sorted_names(seen.names());
  ignored.require_none(names);
  return names;
}

// What the first file calls its integers. Others may have them in another order, and others that no row has.
std::vector<std::string> class_names_of(const data::TableReader& reader, const std::string& column) {
  std::vector<std::string> names = data::class_names(reader.no_rows(), column);
  require(names.size() <= kMostClasses, ErrorKind::kData, "{}: column '{}' has {} classes, expected at most {}",
          reader.files().front().string(), column, names.size(), kMostClasses);
  return names;
}

LabelMap collect_lists(data::TableReader& reader, const std::string& column) {
  const std::string file = reader.files().front().string();
  Indicators indicators;
  std::vector<std::string> names =
      collect_names(reader, column, [&](const std::vector<std::string>& labels) { indicators.add(labels); });
  require(
      !indicators.are_there(), ErrorKind::kData,
      "{}: column '{}' says in lists of one length of each label whether a text has it; name the labels that it has "
      "instead",
      file, column);
  return LabelMap::classes(std::move(names), models::ProblemType::kMultiLabelClassification);
}

LabelMap collect_classes(data::TableReader& reader, const std::string& column, bool is_csv, bool may_be_numbers) {
  SeenLabels seen(may_be_numbers && is_csv);
  IgnoredLabel ignored;
  const std::string file = reader.files().front().string();
  bool decimals = false;
  while (const auto table = reader.next()) {
    const data::LabelColumn labels = table->labels(column);
    decimals = may_be_numbers && labels.kind() == data::LabelKind::kNumber;
    if (decimals) break;
    for (int64_t row = 0; row < labels.size(); ++row) {
      if (labels.is_null(row)) fail(ErrorKind::kData, "{}: column '{}' has no label", table->where(row), column);
      const std::string label = labels.text(row);
      seen.add(label);
      ignored.look_at(label, *table, row);
      require_few(!seen.are_too_many(), file, column);
    }
  }
  if (decimals || seen.are_decimals()) {
    log::info(
        "{}: column '{}' holds decimal numbers: regression (--problem_type single_label_classification would "
        "make each of them a class)",
        file, column);
    return LabelMap::numbers();
  }
  const std::string* const odd = seen.odd_one();
  require(odd == nullptr, ErrorKind::kData,
          "{}: column '{}' holds decimal numbers, but also '{}': correct it, or pass --problem_type "
          "single_label_classification, which makes each of them a class",
          file, column, odd ? printable(*odd) : "");
  require_few(seen.names().size() <= kMostClasses, file, column);
  std::optional<std::vector<std::string>> of_csv;
  if (is_csv) of_csv = integers_of_csv(seen.names());
  std::vector<std::string> names = of_csv ? std::move(*of_csv) : sorted_names(seen.names());
  ignored.require_none(names);
  return LabelMap::classes(std::move(names), models::ProblemType::kSingleLabelClassification);
}

}  // namespace

LabelMap collect_labels(const data::TableSource& source, const std::string& column,
                        std::optional<models::ProblemType> problem) {
  data::TableSource only_labels = source;
  only_labels.columns = {column};
  data::TableReader reader(only_labels);
  const bool has_lists = data::holds_lists(reader.no_rows(), column);
  const bool wants_lists = problem == models::ProblemType::kMultiLabelClassification;
  require(!problem || has_lists == wants_lists, ErrorKind::kData, "{}: column '{}' holds {} where a {} needs {}",
          reader.files().front().string(), column, has_lists ? "lists" : "one value per row",
          problem ? to_string(*problem) : "", has_lists ? "one label per row" : "lists of labels");
  const bool is_regression = problem == models::ProblemType::kRegression;
  std::vector<std::string> declared = is_regression ? std::vector<std::string>() : class_names_of(reader, column);
  if (!declared.empty()) {
    return LabelMap::classes(
        std::move(declared),
        has_lists ? models::ProblemType::kMultiLabelClassification : models::ProblemType::kSingleLabelClassification,
        LabelMap::Numbered::kYes);
  }
  if (has_lists) return collect_lists(reader, column);
  if (is_regression) {
    reader.no_rows().labels(column);
    return LabelMap::numbers();
  }
  return collect_classes(reader, column, is_untyped(source, reader), !problem);
}

LabelMap labels_in_lists(const data::TableSource& source, const std::string& column) {
  constexpr auto kLists = models::ProblemType::kMultiLabelClassification;
  data::TableSource labels = source;
  labels.columns = {column};
  data::TableReader reader(std::move(labels));
  std::vector<std::string> declared = class_names_of(reader, column);
  if (!declared.empty()) return LabelMap::classes(std::move(declared), kLists, LabelMap::Numbered::kYes);
  return LabelMap::classes(collect_names(reader, column, [](const std::vector<std::string>&) {}), kLists);
}

}  // namespace strake::rows
