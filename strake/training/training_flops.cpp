#include "strake/training/training_flops.h"

#include <deque>

#include "strake/models/planned_graph.h"

namespace strake::training {
namespace {

using models::PlannedGradients;
using models::PlannedGraph;
using models::PlannedTensor;

double step_flops(const models::Model& model, const models::BatchShape& batch, Recomputation recomputation) {
  double sum = 0;
  for (const BlockFlops& block : block_flops(model, batch, recomputation)) sum += block.forward + block.backward;
  return sum;
}

}  // namespace

std::vector<BlockFlops> block_flops(const models::Model& model, const models::BatchShape& batch,
                                    Recomputation recomputation) {
  models::MemoryMeter meter;
  const size_t first = model.first_trained_block();
  std::deque<PlannedGraph> graphs;
  std::vector<PlannedTensor> outputs;
  std::vector<BlockFlops> flops;
  PlannedTensor activations;
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    const auto gradients = i < first ? PlannedGradients::kNone : PlannedGradients::kTaken;
    PlannedGraph& graph = graphs.emplace_back(meter, PlannedGraph::Options{.batch = batch, .gradients = gradients});
    activations = model.blocks()[i]->plan(graph, i <= first ? activations : PlannedGraph::leaf(activations));
    outputs.push_back(activations);
    flops.push_back({.forward = graph.flops()});
  }
  PlannedTensor gradient = activations;
  for (size_t i = model.blocks().size(); i-- > first;) {
    gradient = graphs[i].backward(outputs[i], gradient);
    flops[i].backward = graphs[i].flops() - flops[i].forward;
    const bool is_recomputed = recomputation == Recomputation::kCounted && i + 1 < model.blocks().size();
    if (is_recomputed) flops[i].backward += flops[i].forward;
  }
  return flops;
}

// All products are linear in tokens, sequences, squared lengths and targets. Sequences have at least one token.
TrainingFlops::TrainingFlops(const models::Model& model, Recomputation recomputation) {
  const auto of = [&](const models::BatchShape& batch) { return step_flops(model, batch, recomputation); };
  const double least = of({.tokens = 1, .sequences = 1});
  per_token_ = of({.tokens = 2, .sequences = 1}) - least;
  per_pair_ = of({.tokens = 1, .sequences = 1, .squared_lengths = 1}) - least;
  per_sequence_ = least - per_token_;
  per_target_ = of({.tokens = 1, .sequences = 1, .targets = 1}) - least;
}

}  // namespace strake::training
