#include "strake/models/layers/select_first.h"

namespace strake::models::layers {

at::Tensor select_first(const at::Tensor& hidden, const tensors::PackedBatch& batch) {
  return hidden.index_select(0, batch.offsets.narrow(0, 0, batch.num_sequences()));
}

PlannedTensor select_first(PlannedGraph& graph, const PlannedTensor& hidden) {
  PlannedTensor first = graph.empty(graph.batch().sequences, hidden.columns);
  graph.attach(
      {&first}, {hidden}, {},
      [&graph, rows = hidden.rows](PlannedGraph::Saved&, const PlannedGraph::Saved& gradients) -> PlannedGraph::Saved {
        return {graph.empty(rows, gradients[0].columns)};
      });
  return first;
}

}  // namespace strake::models::layers
