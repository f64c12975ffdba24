#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "strake/data/token_dataset.h"
#include "strake/rows/document_pieces.h"
#include "strake/tasks/splits.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

// How documents become sequences.
struct DocumentReading {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string text_column;
  rows::PieceShape pieces;
  int64_t vocab_size = 0;  // the model's
  int workers = 1;         // that tokenize
};

struct Documents {
  data::TokenDataset pieces;
  int64_t count = 0;
  int64_t count_cut = 0;  // into several pieces
};

// All documents of a split, in memory. Errors: kData if none has enough tokens; kConfig for tokens that the model
// lacks.
Documents read_documents(Split& split, const DocumentReading& how);

}  // namespace strake::tasks
