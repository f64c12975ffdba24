#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/models/encoder/config.h"

namespace strake::tasks {

// A training target: a class id, a number, or none.
using Label = std::variant<std::monostate, int32_t, float>;

// Turns a label column into targets: names to class ids, or numbers for regression.
class LabelMap {
 public:
  // Classes with these names, in order of id.
  static LabelMap classes(std::vector<std::string> names);
  static LabelMap numbers();
  // As the labels of a model that has been fine-tuned before.
  static LabelMap of(const models::EncoderConfig& config);
  // From one pass over the column, as Hugging Face's run_classification does: floating point means regression,
  // everything else classes, sorted (integers by value, text by bytes). A CSV column is floating point, as for pandas,
  // if all of its values are numbers and not all are written as integers.
  static LabelMap collect(const data::TableSource& source, const std::string& column,
                          std::optional<models::ProblemType> problem);

  models::ProblemType problem() const { return problem_; }
  const std::vector<std::string>& names() const { return names_; }
  // LABEL_0, LABEL_1, ...: Transformers' names for labels without one.
  bool has_generic_names() const { return generic_names_; }

  // Error (kData) naming file and row for a missing label or one that is no class of the model. Of a
  // trained model integers are also understood as class ids, unless a class is called by one.
  Label map(const data::LabelColumn& column, int64_t row, const data::Table& table) const;

 private:
  models::ProblemType problem_ = models::ProblemType::kSingleLabelClassification;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> ids_;
  bool generic_names_ = false;
  bool takes_ids_ = false;
};

// "regression", "single_label_classification" or "" (nothing); Error (kUsage) naming --problem_type otherwise.
std::optional<models::ProblemType> parse_problem_type_flag(const std::string& text);

// Error (kConfig) for a model that gives a text several labels.
void require_one_label(const models::EncoderConfig& config);
// Error (kConfig) for a regression with more or less than one output.
void require_one_number(const models::EncoderConfig& config);

}  // namespace strake::tasks
