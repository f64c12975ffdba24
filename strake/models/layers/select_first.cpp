#include "strake/models/layers/select_first.h"

#include <ATen/ops/arange.h>

namespace strake::models::layers {
namespace {

at::Tensor first_of_sequences(const tensors::PackedBatch& batch) {
  return batch.offsets.narrow(0, 0, batch.on_host().num_sequences());
}

}  // namespace

at::Tensor select_first(const at::Tensor& hidden, const tensors::PackedBatch& batch) {
  return hidden.index_select(0, first_of_sequences(batch));
}

tensors::PackedBatch first_tokens(const tensors::PackedBatch& batch) {
  const at::Tensor first = first_of_sequences(batch);
  return {.input_ids = batch.input_ids.index_select(0, first),
          .token_type_ids = batch.token_type_ids.index_select(0, first),
          .positions = batch.positions.index_select(0, first),
          .token_rows = batch.token_rows.index_select(0, first),
          .offsets = at::arange(first.numel() + 1, batch.offsets.options()),
          .labels = batch.labels};
}

PlannedTensor select_first(PlannedGraph& graph, const PlannedTensor& hidden) {
  return select_rows(graph, hidden, graph.batch().sequences);
}

PlannedTensor select_rows(PlannedGraph& graph, const PlannedTensor& hidden, int64_t count) {
  PlannedTensor selected = graph.empty(count, hidden.columns);
  graph.attach(
      {&selected}, {hidden}, {},
      [&graph, rows = hidden.rows](PlannedGraph::Saved&, const PlannedGraph::Saved& gradients) -> PlannedGraph::Saved {
        return {graph.empty(rows, gradients[0].columns)};
      });
  return selected;
}

}  // namespace strake::models::layers
