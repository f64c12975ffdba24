#pragma once

#include <cstdint>
#include <memory>

#include "strake/data/token_dataset.h"
#include "strake/models/gpt2/config.h"
#include "strake/tasks/train_job.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

// --block_size, or without it (0) as many tokens as the model has positions, at most 1024. Error (kUsage) if the model
// has fewer positions.
int64_t choose_block_size(int64_t block_size, const models::Gpt2Config& model);

// How documents become sequences.
struct DocumentReading {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string text_column;
  int64_t block_size = 0;
  int64_t vocab_size = 0;  // the model's
  int workers = 1;         // that tokenize
};

struct Documents {
  data::TokenDataset pieces;
  int64_t count = 0;
  int64_t count_cut = 0;  // into several pieces
};

// All documents of a split, in memory. Errors: kData if none has two tokens; kConfig for tokens that the model lacks.
Documents read_documents(Split& split, const DocumentReading& how);

}  // namespace strake::tasks
