#include "strake/models/layers/planned_products.h"

#include "strake/models/layers/linear_products.h"

namespace strake::models::layers {
namespace {

int64_t copies(const PlannedGraph& graph, const ProductShape& shape) {
  if (!graph.widens_products()) return 0;
  return widened_products_workspace(shape.tokens, shape.outputs, shape.inputs);
}

int64_t element_size(const PlannedGraph& graph) {
  return graph.widens_products() ? int64_t{sizeof(float)} : graph.element_size();
}

}  // namespace

bool multiplies_in_place(const PlannedGraph& graph) {
  if (graph.widens_products()) return false;
  const auto dtype = graph.element_size() == sizeof(float) ? at::kFloat : at::kBFloat16;
  return can_multiply_in_place(dtype, matmul_library());
}

void use_linear_workspace(PlannedGraph& graph, const ProductShape& shape) { graph.use(copies(graph, shape)); }

// cuBLAS has memory of its own for these.
void use_input_gradient_workspace(PlannedGraph& graph, const ProductShape& shape) {
  if (graph.is_on_gpu()) return;
  graph.use(copies(graph, shape) + linear_input_gradient_workspace(shape.tokens, shape.inputs, element_size(graph)));
}

void use_weight_gradient_workspace(PlannedGraph& graph, const ProductShape& shape) {
  if (graph.is_on_gpu()) return;
  graph.use(copies(graph, shape) +
            linear_weight_gradient_workspace(shape.tokens, shape.outputs, shape.inputs, element_size(graph)));
}

}  // namespace strake::models::layers
