#include "strake/models/layers/select_tokens.h"

#include <ATen/ops/arange.h>

namespace strake::models::layers {

at::Tensor first_places(const tensors::PackedBatch& batch) {
  return batch.offsets.narrow(0, 0, batch.on_host().num_sequences());
}

at::Tensor masked_places(const tensors::PackedBatch& batch) {
  return tensors::to_device(batch.on_host().masked, batch.input_ids.device());
}

at::Tensor select_tokens(const at::Tensor& hidden, const at::Tensor& places) { return hidden.index_select(0, places); }

tensors::PackedBatch tokens_at(const tensors::PackedBatch& batch, const at::Tensor& places) {
  return {.input_ids = batch.input_ids.index_select(0, places),
          .token_type_ids = batch.token_type_ids.index_select(0, places),
          .positions = batch.positions.index_select(0, places),
          .token_rows = batch.token_rows.index_select(0, places),
          .offsets = at::arange(places.numel() + 1, batch.offsets.options()),
          .labels = batch.labels};
}

PlannedTensor select_tokens(PlannedGraph& graph, const PlannedTensor& hidden, int64_t places) {
  PlannedTensor selected = graph.empty(places, hidden.columns);
  graph.attach(
      {&selected}, {hidden}, {},
      [&graph, rows = hidden.rows](PlannedGraph::Saved&, const PlannedGraph::Saved& gradients) -> PlannedGraph::Saved {
        return {graph.empty(rows, gradients[0].columns)};
      });
  return selected;
}

}  // namespace strake::models::layers
