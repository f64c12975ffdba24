#pragma once

#include <optional>

#include "strake/models/block.h"

namespace strake::models::layers {

struct EmbeddingTables {
  Parameter word;                       // [vocab_size, H]
  Parameter position;                   // [max_positions, H]
  std::optional<Parameter> token_type;  // [type_vocab_size, H]
  at::Tensor position_rows;             // int32 [T]: the position table's row for each token
  at::Tensor host_position_rows = {};   // in memory of the host, those of the batch's on_host(); undefined: none
};

// Sum of the tables' rows for each token: [T, H]. Ids, positions and types outside a table are errors (kData).
at::Tensor embedding_sum(const EmbeddingTables& tables, const tensors::PackedBatch& batch);

// Its plan; `columns` is H.
PlannedTensor embedding_sum(PlannedGraph& graph, int64_t columns, Trained any_table);

}  // namespace strake::models::layers
