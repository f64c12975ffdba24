#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strake/data/table.h"

namespace strake::data {

// The texts that each row has in a column of strings, of lists of strings, or, as Hugging Face's SQuAD has them, of
// objects whose member `text` is one of these, or lists of objects whose `text` is a string. Null is no text. In JSON
// lines each row may be another one of them. Error (kData) if the column is missing or something else, naming the row
// where it depends on that; for null in a list of objects or in an object's list, whose items have partners; and for a
// text alone that is such an object in writing, as in a CSV file.
std::vector<std::vector<std::string>> text_lists(const Table& table, const std::string& column);

// A text with its place in another one, in code points.
struct PlacedText {
  std::string text;
  int64_t start = 0;
};

// The same of objects, or lists of them, that also have a member `answer_start`: an integer for each text. Error
// (kData) naming the row, too, for another number of them than of texts and for one below 0 or beyond int64_t.
std::vector<std::vector<PlacedText>> placed_texts(const Table& table, const std::string& column);

}  // namespace strake::data
