#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "strake/data/table.h"
#include "strake/data/token_dataset.h"
#include "strake/models/encoder/config.h"

namespace strake::rows {

// A training target: a class id, a number, any number of class ids, ascending, or none.
using Label = std::variant<std::monostate, int32_t, float, std::vector<int32_t>>;

// Turns a label column into targets: names to class ids, one per row or lists of them, or numbers for regression.
class LabelMap {
 public:
  // Classes with these names, in order of id; of the problem a row has one of them, or any number. `numbered`: integers
  // are ids as well, unless a class is called by one.
  enum class Numbered { kNo, kYes };
  static LabelMap classes(std::vector<std::string> names, models::ProblemType problem,
                          Numbered numbered = Numbered::kNo);
  static LabelMap numbers();
  // As the labels of a model that has been fine-tuned before.
  static LabelMap of(const models::EncoderConfig& config);
  models::ProblemType problem() const { return problem_; }
  const std::vector<std::string>& names() const { return names_; }
  // The class that a name, or the number of one, means here; nothing if none.
  std::optional<int32_t> find(const std::string& name) const;
  // Of several labels in their order. The same errors as map().
  std::vector<int32_t> ids_of(const std::vector<std::string>& names, int64_t row, const data::Table& table) const;
  // LABEL_0, LABEL_1, ...: Transformers' names for labels without one.
  bool has_generic_names() const { return generic_names_; }

  // Targets of a table's rows from `first_row` on. Error (kData) naming file and row for a missing label or one that is
  // no class of the model. Classes of a trained model are numbered.
  //
  // Integers that the file has names for (data::class_names) are those classes, unless none of the names is known here:
  // then they are ids. A file that shares some of its names means the same by them, in an order of its own.
  std::vector<Label> map(const data::Table& table, const std::string& column, int64_t first_row = 0) const;
  // Of a column of lists, what each holds, in its order; such integers by their names.
  std::vector<std::vector<std::string>> lists(const data::Table& table, const std::string& column) const;

 private:
  std::vector<std::string> declared_names(const data::Table& table, const std::string& column) const;
  int32_t id_of(const std::string& name, int64_t row, const data::Table& table) const;
  Label classes_of(const std::vector<std::string>& names, int64_t row, const data::Table& table) const;

  models::ProblemType problem_ = models::ProblemType::kSingleLabelClassification;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> ids_;
  bool generic_names_ = false;
  bool is_of_model_ = false;  // and not of data
  bool takes_ids_ = false;
};

bool are_integers(const std::vector<std::string>& names);

// "regression", "single_label_classification", "multi_label_classification" or "" (nothing); Error (kUsage) naming
// --problem_type otherwise.
std::optional<models::ProblemType> parse_problem_type_flag(const std::string& text);

// What the labels of such a problem are in a dataset, and back; nothing for kNone.
data::TokenLabelKind label_kind_of(models::ProblemType problem);
std::optional<models::ProblemType> problem_of(data::TokenLabelKind kind);

// Error (kConfig) for a regression with more or less than one output.
void require_one_number(const models::EncoderConfig& config);

}  // namespace strake::rows
