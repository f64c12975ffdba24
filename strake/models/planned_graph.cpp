#include "strake/models/planned_graph.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace strake::models {
namespace {

constexpr size_t kLeaf = std::numeric_limits<size_t>::max();
constexpr int64_t kSumElementSize = 4;  // gradients are added up in fp32

}  // namespace

PlannedTensor PlannedGraph::empty(int64_t rows, int64_t columns, int64_t element_size) {
  return {.rows = rows,
          .columns = columns,
          .element_size = element_size,
          .memory = meter_.lend(MemoryUse::kActivations, rows * columns * element_size),
          .origin = std::nullopt};
}

PlannedTensor PlannedGraph::leaf(PlannedTensor x) {
  if (x.defined()) x.origin = PlannedEdge{.node = kLeaf, .output = 0};
  return x;
}

bool PlannedGraph::records(const std::vector<PlannedTensor>& inputs, Trained trained) const {
  const auto needs_gradient = [](const PlannedTensor& input) { return input.origin.has_value(); };
  return takes_gradients() && (trained == Trained::kYes || std::ranges::any_of(inputs, needs_gradient));
}

void PlannedGraph::attach(std::vector<PlannedTensor*> outputs, const std::vector<PlannedTensor>& inputs, Saved saved,
                          Backward backward, Trained trained) {
  if (!records(inputs, trained)) return;
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->origin = PlannedEdge{.node = nodes_.size(), .output = i};
  Node& node = nodes_.emplace_back();
  node.saved = std::move(saved);
  for (const PlannedTensor& input : inputs) node.inputs.push_back(input.origin);
  node.backward = std::move(backward);
  node.gradients.resize(outputs.size());
}

void PlannedGraph::accept(const PlannedTensor& gradient) {
  // ATen converts what it adds to another dtype first; a copy converts on the way.
  if (options_.fold == PlannedFold::kAdd && gradient.element_size != kSumElementSize) {
    empty(gradient.rows, gradient.columns, kSumElementSize);
  }
}

PlannedTensor PlannedGraph::backward(const PlannedTensor& output, const PlannedTensor& output_gradient) {
  if (output.origin) add_gradient(*output.origin, output_gradient);
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    std::vector<PlannedTensor> gradients = node.backward(node.saved, node.gradients);
    node.gradients.clear();
    node.saved.clear();
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i]) add_gradient(*node.inputs[i], std::exchange(gradients[i], {}));
    }
  }
  return std::exchange(leaf_gradient_, {});
}

void PlannedGraph::add_gradient(const PlannedEdge& edge, PlannedTensor gradient) {
  PlannedTensor& sum = edge.node == kLeaf ? leaf_gradient_ : nodes_[edge.node].gradients[edge.output];
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (sum.memory.use_count() > 1) {  // autograd adds in place only to what nobody else holds
    sum = empty_like(sum);
  }
}

}  // namespace strake::models
