#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strake/data/table_reader.h"
#include "strake/data/token_dataset.h"
#include "strake/rows/label_map.h"
#include "strake/rows/text_rows.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::rows {

// The labels that a model has for words; integers are understood as well (LabelMap::map).
LabelMap labels_of_words(const models::EncoderConfig& model);

// Texts whose words are known and have labels, as Transformers' run_ner.py reads them.
struct LabelledWords {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  const TextOptions& options;  // text_column holds lists of words, label_column a label for each
  const LabelMap& labels;
  bool label_all_tokens = false;  // of a word; else only its first
};

// Before what takes long: the files with these two columns. Error (kData) if one of them holds no lists.
data::TableReader open_words(const std::vector<std::string>& files, const TextOptions& options);

// Hands over rows in their order, in constant memory, with classes of tokens and with places that say which tokens are
// of words. Words are tokenized each on its own, with a space before them where the tokenizer tells words by spaces.
// What is behind max_seq_length tokens is left out. Errors: kData, naming the row, for another number of labels than of
// words; kConfig if the tokenizer does not put one special token before a text and one behind it; kUsage if
// max_seq_length leaves no room between them.
void for_each_labelled(data::TableReader& input, const LabelledWords& words, int workers,
                       const std::function<void(EncodedRows)>& sink);

// Everything in memory. What is cut off is told; rows that have no labelled token are left out and told.
data::TokenDataset encode_words(data::TableReader& input, const LabelledWords& words, int workers);

}  // namespace strake::rows
