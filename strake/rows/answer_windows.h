#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/rows/text_rows.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

// Questions about texts, with answers that are parts of them.
struct LabelledQuestions {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  const TextOptions& options;  // text_column holds questions, text_pair_column contexts; with a doc_stride
  std::string answers_column;  // data::placed_texts
};

// A table of them, with what was true of each row.
struct AnsweredRows {
  EncodedRows rows;  // with places of tokens and without ids
  std::vector<std::vector<std::string>> answers;
};

// About what it takes in memory: places and contexts, of which there are most.
int64_t bytes_of(const AnsweredRows& table, const std::string& context_column);

struct AnswerWindows {
  data::TokenDataset dataset;  // of all windows, in order
  std::vector<AnsweredRows> tables;
};

enum class KeepTables { kNo, kYes };

// Before what takes long: the files with these three columns. Error (kData) if one of them is missing or holds
// something else.
data::TableReader open_questions(const std::vector<std::string>& files, const LabelledQuestions& questions);

// Everything in memory. Rows become windows as Transformers' run_qa.py cuts them, each with the span of tokens that
// holds the row's first answer, or with its first token alone where the window does not hold all of it or the row has
// none. Unlike there, the span of an answer of one character in several tokens does not end before it begins. `tables`
// are empty unless they are kept. Says how many rows have no answer, and how many another text at its place. Errors
// (kData) name the row: a place outside of the text, a question that leaves no room.
AnswerWindows encode_answers(data::TableReader& input, const LabelledQuestions& questions, KeepTables keep,
                             int workers);

}  // namespace strake::rows
