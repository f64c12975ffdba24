#pragma once

#include <string>
#include <vector>

#include "strake/data/table.h"

namespace strake::data {

// Whether a column holds lists, or, in JSON lines, nested values of any kind. Error (kData) as of Table::text() for a
// column that is missing or there twice.
bool holds_lists(const Table& table, const std::string& column);

// The labels, or the words, of each row in a column that holds lists of strings, booleans or integers, each as
// LabelColumn::text() has it. A row may have none. Error (kData) for a column of another type; naming the row, for null
// in place of a list or a label, and in JSON lines for a row that is no such list.
std::vector<std::vector<std::string>> label_lists(const Table& table, const std::string& column);

}  // namespace strake::data
