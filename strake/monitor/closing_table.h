#pragma once

#include <ostream>
#include <span>
#include <string>
#include <utility>

namespace strake::monitor {

// Name and text of one result, for example {"eval_accuracy", "0.9250"}.
using TableRow = std::pair<std::string, std::string>;

// The table at the end of a verb, in the form in which Hugging Face's example scripts print theirs:
//   ***** train metrics *****
//     epoch         =    3.0
//     train_runtime =  12:34
void print_closing_table(std::ostream& out, const std::string& title, std::span<const TableRow> rows);

}  // namespace strake::monitor
