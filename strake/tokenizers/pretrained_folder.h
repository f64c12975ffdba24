#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "strake/tokenizers/spec.h"

namespace strake::tokenizers {

struct LoadedFiles {
  TokenizerSpec spec;
  std::map<std::string, std::string> files;  // name and content, for Tokenizer::save
  std::optional<int64_t> model_max_length;
};

// Reads what Tokenizer::load describes. A folder follows transformers 5: if tokenizer_config.json or config.json names
// BERT, DistilBERT, RoBERTa or GPT-2, then the vocabulary, merges and added tokens come from the files, and everything
// else is what that tokenizer class makes of tokenizer_config.json (so a BERT tokenizer lowercases unless do_lower_case
// is false, whatever its tokenizer.json says). With any other class tokenizer.json is taken as it is written, and
// tokenizer_config.json may add special tokens.
LoadedFiles load_files(const std::filesystem::path& path);

}  // namespace strake::tokenizers
