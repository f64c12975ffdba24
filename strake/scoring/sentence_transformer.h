#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "strake/inference/head.h"

namespace strake::scoring {

std::optional<inference::Pooling> parse_pooling(const std::string& name);  // "mean", "cls"

// What the files of a folder of sentence-transformers say of its vectors.
struct SentenceTransformer {
  std::optional<inference::Pooling> pooling;
  bool normalizes = false;
  bool strips_texts = false;  // of white space at both ends, before they are tokenized
  // Of a text, tokens that are read. Of a folder that leaves it to the tokenizer and the model: the most there can be.
  std::optional<int64_t> max_seq_length;
};

// Nothing is set where there is no modules.json. The pooling's file is read only if `reads_pooling`. Error (kConfig)
// that names the file for modules, poolings and changes of texts or vectors that strake does not compute.
SentenceTransformer read_sentence_transformer(const std::filesystem::path& folder, bool reads_pooling);

}  // namespace strake::scoring
