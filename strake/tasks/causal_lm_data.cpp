#include "strake/tasks/causal_lm_data.h"

#include "strake/core/error.h"
#include "strake/tasks/causal_lm_config.h"
#include "strake/tasks/document_pieces.h"

namespace strake::tasks {

int64_t choose_block_size(int64_t block_size, const models::Gpt2Config& model) {
  require(block_size <= model.max_positions, ErrorKind::kUsage, "--block_size {} is more than the model's {} positions",
          block_size, model.max_positions);
  return block_size > 0 ? block_size : default_block_size(model);
}

Documents read_documents(Split& split, const DocumentReading& how) {
  DocumentPieces pieces(split.paths.front(), how.block_size, split.most_sequences);
  if (split.tables) {
    pieces.append_texts(*split.tables, how.tokenizer, how.text_column, how.workers);
  } else {
    pieces.append_token_files(split.paths, *how.tokenizer, split.rows);
  }
  pieces.log_counts();
  Documents documents{
      .pieces = pieces.build(), .count = pieces.num_documents(), .count_cut = pieces.num_cut_documents()};
  require(documents.pieces.size() > 0, ErrorKind::kData, "{} has no document of two tokens or more",
          split.paths.front());
  require_known_tokens(documents.pieces, how.vocab_size, split.paths.front());
  return documents;
}

}  // namespace strake::tasks
