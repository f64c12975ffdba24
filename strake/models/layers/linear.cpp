#include "strake/models/layers/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "strake/kernels/column_sum.h"
#include "strake/models/layers/linear_products.h"
#include "strake/models/layers/node.h"
#include "strake/models/layers/planned_products.h"

namespace strake::models::layers {
namespace {

void hand_over_bias_gradient(const Parameter& bias, const at::Tensor& dy) {
  const ComputedGradient sum(bias, dy);
  dispatch_storage(dy, [&]<typename T>(T*, const auto& place) {
    kernels::column_sum<T>({.x = const_storage<T>(dy), .out = sum.data(), .tokens = dy.size(0), .columns = dy.size(1)},
                           place);
  });
  sum.hand_over();
}

// Straight into the sum where the matrix library can.
void hand_over_weight_gradient(const Parameter& weight, const at::Tensor& dy, const at::Tensor& x) {
  const MatmulLibrary library = matmul_library_for(x);
  if (!x.is_cuda() && !can_multiply_in_place(x.scalar_type(), library)) {
    weight.sink->accept(weight.index, linear_weight_gradient(dy, x, library));
    return;
  }
  const GradientSink::Target target = weight.sink->target(weight.index);
  linear_weight_gradient_into(dy, x, target.gradient, target.store);
}

struct LinearNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dy = gradients[0].contiguous();
    if (is_trained(weight)) hand_over_weight_gradient(weight, dy, x);
    if (is_trained(bias)) hand_over_bias_gradient(bias, dy);
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {linear_input_gradient(dy, weight.value, matmul_library_for(dy), weight.pack)};
  }
  void release_variables() override { x.reset(); }

  at::Tensor x;
  Parameter weight, bias;
};

struct LinearActivationNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dproduct = at::empty_like(product);
    const ComputedGradient dbias(bias, dy);
    dispatch_storage(product, [&]<typename T>(T*, const auto& place) {
      kernels::bias_activation_backward<T>({.dy = const_storage<T>(dy),
                                            .x = const_storage<T>(product),
                                            .bias = const_storage<T>(bias.value),
                                            .dx = storage<T>(dproduct),
                                            .dbias = dbias.data(),
                                            .tokens = product.size(0),
                                            .columns = product.size(1),
                                            .activation = activation},
                                           place);
    });
    product.reset();
    dbias.hand_over();
    if (is_trained(weight)) hand_over_weight_gradient(weight, dproduct, x);
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {linear_input_gradient(dproduct, weight.value, matmul_library_for(dy), weight.pack)};
  }
  void release_variables() override { x.reset(), product.reset(); }

  at::Tensor x, product;  // product: before bias and activation
  Parameter weight, bias;
  kernels::Activation activation = kernels::Activation::kIdentity;
};

// What the gradients of a projection depend on.
struct PlannedProduct {
  ProductShape shape;
  Trained weight;
  bool takes_input_gradient;
};

PlannedTensor planned_output(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs) {
  PlannedTensor y = graph.empty(x.rows, outputs);
  use_linear_workspace(graph, {.tokens = x.rows, .outputs = outputs, .inputs = x.columns});
  graph.multiply(x.rows, x.columns, outputs);
  return y;
}

PlannedProduct planned_product(const PlannedTensor& x, int64_t outputs, Trained weight) {
  return {.shape = {.tokens = x.rows, .outputs = outputs, .inputs = x.columns},
          .weight = weight,
          .takes_input_gradient = x.origin.has_value()};
}

// The weight's, handed over, and the input's.
PlannedTensor planned_gradients(PlannedGraph& graph, const PlannedProduct& product) {
  const auto& [tokens, outputs, inputs] = product.shape;
  if (product.weight == Trained::kYes) {
    graph.multiply(outputs, tokens, inputs);
    if (graph.is_on_gpu()) {
      if (graph.adds_gradients()) graph.empty(outputs, inputs, sizeof(float));
    } else if (!multiplies_in_place(graph)) {
      const PlannedTensor dweight = graph.empty(outputs, inputs);
      use_weight_gradient_workspace(graph, product.shape);
      graph.accept(dweight);
    }
  }
  if (!product.takes_input_gradient) return {};
  PlannedTensor dx = graph.empty(tokens, inputs);
  use_input_gradient_workspace(graph, product.shape);
  graph.multiply(tokens, outputs, inputs);
  return dx;
}

// The input is saved for the weight's gradient only.
PlannedTensor saved_input(const PlannedTensor& x, Trained weight) {
  return weight == Trained::kYes ? x : PlannedTensor();
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  at::Tensor y = without_recording(
      [&] { return linear_product(x, weight.value, bias.value, matmul_library_for(x), weight.pack); });
  if (!is_trained(weight) && !is_trained(bias) && !x.requires_grad()) return y;
  auto node = std::make_shared<LinearNode>();
  if (is_trained(weight)) node->x = x.detach();
  node->weight = weight;
  node->bias = bias;
  return attach(y, node, x);
}

at::Tensor linear_activation(const at::Tensor& x, const Parameter& weight, const Parameter& bias,
                             kernels::Activation activation) {
  const bool recording = is_trained(weight) || is_trained(bias) || x.requires_grad();
  const ActivatedLinear result = without_recording([&] {
    return activated_linear_product({x, weight.value, bias.value, weight.pack}, activation,
                                    recording ? KeepProduct::kYes : KeepProduct::kNo, matmul_library_for(x));
  });
  if (!recording) return result.y;
  auto node = std::make_shared<LinearActivationNode>();
  if (is_trained(weight)) node->x = x.detach();
  node->product = result.product;
  node->weight = weight;
  node->bias = bias;
  node->activation = activation;
  return attach(result.y, node, x);
}

PlannedTensor linear(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs, const TrainedAffine& trained) {
  PlannedTensor y = planned_output(graph, x, outputs);
  const PlannedProduct product = planned_product(x, outputs, trained.weight);
  graph.attach(
      {&y}, {x}, {saved_input(x, trained.weight)},
      [&graph, product](PlannedGraph::Saved&, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
        return {planned_gradients(graph, product)};
      },
      trained.any());
  return y;
}

PlannedTensor linear_activation(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs,
                                const TrainedAffine& trained) {
  PlannedTensor product = planned_output(graph, x, outputs);
  const PlannedProduct shape = planned_product(x, outputs, trained.weight);
  if (!graph.records({x}, trained.any())) return product;
  PlannedTensor y = graph.empty_like(product);
  graph.attach(
      {&y}, {x}, {saved_input(x, trained.weight), product},
      [&graph, shape](PlannedGraph::Saved& saved, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
        const PlannedTensor dproduct = graph.empty_like(saved[1]);
        saved.pop_back();
        return {planned_gradients(graph, shape)};
      },
      trained.any());
  return y;
}

}  // namespace strake::models::layers
