#pragma once

#include <memory>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/tasks/label_map.h"
#include "strake/tasks/text_rows.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

// Texts whose words are known and have labels, as Transformers' run_ner.py reads them.
struct LabelledWords {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  const TextOptions& options;  // text_column holds lists of words, label_column a label for each
  const LabelMap& labels;
  bool label_all_tokens = false;  // of a word; else only its first
};

// Before what takes long: the files with these two columns. Error (kData) if one of them holds no lists.
data::TableReader open_words(const std::vector<std::string>& files, const TextOptions& options);

// Everything in memory, with classes of tokens. Words are tokenized each on its own, with a space before them where
// the tokenizer tells words by spaces. What is behind max_seq_length tokens is left out and told; so are rows that have
// no labelled token. Errors: kData, naming the row, for another number of labels than of words; kConfig if the
// tokenizer does not put one special token before a text and one behind it.
data::TokenDataset encode_words(data::TableReader& input, const LabelledWords& words, int workers);

}  // namespace strake::tasks
