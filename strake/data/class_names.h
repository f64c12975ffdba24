#pragma once

#include <string>
#include <vector>

#include "strake/data/table.h"

namespace strake::data {

// What the integers of a column, or of lists in it, are called, in their order: the ClassLabel of Hugging Face's
// Datasets, which keeps its features in the metadata of the Parquet files that it writes (key "huggingface"). Of the
// table's own file. Empty: it does not say, or the column holds no integers. Error (kData) for metadata that is too
// large, and for two classes of one name.
std::vector<std::string> class_names(const Table& table, const std::string& column);

}  // namespace strake::data
