#pragma once

#include <optional>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/rows/label_map.h"

namespace strake::rows {

// The labels of training data, from one pass over the column, as Hugging Face's run_classification finds them: floating
// point means regression, lists mean several labels per row, everything else classes, sorted (integers by value, text
// by bytes). A CSV column is floating point, as for pandas, if all of its values are numbers and not all are written as
// integers. Integers that the file has names for (data::class_names) are those classes, all of them in their order.
LabelMap collect_labels(const data::TableSource& source, const std::string& column,
                        std::optional<models::ProblemType> problem);

// The labels of a column that holds lists, likewise.
LabelMap labels_in_lists(const data::TableSource& source, const std::string& column);

}  // namespace strake::rows
