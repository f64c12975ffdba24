#pragma once

#include "strake/models/planned_graph.h"

// The planned twins of linear_product and its gradients: what a product of T x I, O x I and T x O matrices allocates
// beside its result.
namespace strake::models::layers {

struct ProductShape {
  int64_t tokens = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
};

// True if weight gradients go straight into the sum.
bool multiplies_in_place(const PlannedGraph& graph);

void use_linear_workspace(PlannedGraph& graph, const ProductShape& shape);
void use_input_gradient_workspace(PlannedGraph& graph, const ProductShape& shape);
void use_weight_gradient_workspace(PlannedGraph& graph, const ProductShape& shape);

}  // namespace strake::models::layers
