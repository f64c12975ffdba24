#include "strake/tasks/documents.h"

#include "strake/core/error.h"
#include "strake/rows/known_tokens.h"

namespace strake::tasks {

Documents read_documents(Split& split, const DocumentReading& how) {
  rows::DocumentPieces pieces(split.paths.front(), how.pieces, split.most_sequences);
  if (split.tables) {
    pieces.append_texts(*split.tables, how.tokenizer, how.text_column, how.workers);
  } else {
    pieces.append_token_files(split.paths, *how.tokenizer, split.rows);
  }
  pieces.log_counts();
  Documents documents{
      .pieces = pieces.build(), .count = pieces.num_documents(), .count_cut = pieces.num_cut_documents()};
  require(documents.pieces.size() > 0, ErrorKind::kData, "{} has no document of {}", split.paths.front(),
          how.pieces.least_text());
  rows::require_known_tokens(documents.pieces, how.vocab_size, split.paths.front());
  return documents;
}

}  // namespace strake::tasks
