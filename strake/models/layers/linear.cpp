#include "strake/models/layers/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "strake/kernels/column_sum.h"
#include "strake/models/layers/node.h"
#include "strake/tensors/linear_products.h"

namespace strake::models::layers {
namespace {

at::Tensor column_sum(const at::Tensor& x_nc) {
  const at::Tensor sum = at::empty({x_nc.size(1)}, x_nc.options().dtype(at::kFloat));
  dispatch_storage(x_nc, [&]<typename T>(T*) {
    kernels::column_sum<T>(
        {.x = const_storage<T>(x_nc), .out = storage<float>(sum), .tokens = x_nc.size(0), .columns = x_nc.size(1)});
  });
  return sum;
}

struct LinearNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dy = gradients[0].contiguous();
    if (is_trained(weight)) weight.sink->accept(weight.index, tensors::linear_weight_gradient(dy, x));
    if (is_trained(bias)) bias.sink->accept(bias.index, column_sum(dy));
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {tensors::linear_input_gradient(dy, weight.value)};
  }
  void release_variables() override { x.reset(); }

  at::Tensor x;
  Parameter weight, bias;
};

struct LinearActivationNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dproduct = at::empty_like(product);
    const at::Tensor dbias = at::empty({product.size(1)}, product.options().dtype(at::kFloat));
    dispatch_storage(product, [&]<typename T>(T*) {
      kernels::bias_activation_backward<T>({.dy = const_storage<T>(dy),
                                            .x = const_storage<T>(product),
                                            .bias = const_storage<T>(bias.value),
                                            .dx = storage<T>(dproduct),
                                            .dbias = storage<float>(dbias),
                                            .tokens = product.size(0),
                                            .columns = product.size(1),
                                            .activation = activation});
    });
    product.reset();
    if (is_trained(weight)) weight.sink->accept(weight.index, tensors::linear_weight_gradient(dproduct, x));
    if (is_trained(bias)) bias.sink->accept(bias.index, dbias);
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {tensors::linear_input_gradient(dproduct, weight.value)};
  }
  void release_variables() override { x.reset(), product.reset(); }

  at::Tensor x, product;  // product: before bias and activation
  Parameter weight, bias;
  kernels::Activation activation = kernels::Activation::kIdentity;
};

// What the gradients of a projection depend on.
struct PlannedProduct {
  int64_t rows;
  int64_t inputs;
  int64_t outputs;
  int64_t element_size;
  Trained weight;
  bool takes_input_gradient;
};

PlannedProduct planned_product(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs, Trained weight) {
  graph.multiply(x.rows, x.columns, outputs);
  return {x.rows, x.columns, outputs, x.element_size, weight, x.origin.has_value()};
}

// The weight's, handed over, and the input's.
PlannedTensor planned_gradients(PlannedGraph& graph, const PlannedProduct& product) {
  if (product.weight == Trained::kYes) {
    const PlannedTensor dweight = graph.empty(product.outputs, product.inputs);
    graph.use(
        tensors::linear_weight_gradient_workspace(product.rows, product.outputs, product.inputs, product.element_size));
    graph.multiply(product.outputs, product.rows, product.inputs);
    graph.accept(dweight);
  }
  if (!product.takes_input_gradient) return {};
  PlannedTensor dx = graph.empty(product.rows, product.inputs, product.element_size);
  graph.use(tensors::linear_input_gradient_workspace(product.rows, product.inputs, product.element_size));
  graph.multiply(product.rows, product.outputs, product.inputs);
  return dx;
}

// The input is saved for the weight's gradient only.
PlannedTensor saved_input(const PlannedTensor& x, Trained weight) {
  return weight == Trained::kYes ? x : PlannedTensor();
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  const at::Tensor y = without_recording([&] { return tensors::linear(x, weight.value, bias.value); });
  if (!is_trained(weight) && !is_trained(bias) && !x.requires_grad()) return y;
  auto node = std::make_shared<LinearNode>();
  if (is_trained(weight)) node->x = x.detach();
  node->weight = weight;
  node->bias = bias;
  return attach(y, node, x);
}

at::Tensor linear_activation(const at::Tensor& x, const Parameter& weight, const Parameter& bias,
                             kernels::Activation activation) {
  const at::Tensor product = without_recording([&] { return tensors::linear(x, weight.value, std::nullopt); });
  const bool recording = is_trained(weight) || is_trained(bias) || x.requires_grad();
  const at::Tensor y = recording ? at::empty_like(product) : product;
  dispatch_storage(product, [&]<typename T>(T*) {
    kernels::bias_activation_forward<T>({.x = const_storage<T>(product),
                                         .bias = const_storage<T>(bias.value),
                                         .y = storage<T>(y),
                                         .tokens = product.size(0),
                                         .columns = product.size(1),
                                         .activation = activation});
  });
  if (!recording) return y;
  auto node = std::make_shared<LinearActivationNode>();
  if (is_trained(weight)) node->x = x.detach();
  node->product = product;
  node->weight = weight;
  node->bias = bias;
  node->activation = activation;
  return attach(y, node, x);
}

PlannedTensor linear(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs, const TrainedAffine& trained) {
  PlannedTensor y = graph.empty(x.rows, outputs);
  const PlannedProduct shape = planned_product(graph, x, outputs, trained.weight);
  graph.attach(
      {&y}, {x}, {saved_input(x, trained.weight)},
      [&graph, shape](PlannedGraph::Saved&, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
        return {planned_gradients(graph, shape)};
      },
      trained.any());
  return y;
}

PlannedTensor linear_activation(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs,
                                const TrainedAffine& trained) {
  PlannedTensor product = graph.empty(x.rows, outputs);
  const PlannedProduct shape = planned_product(graph, x, outputs, trained.weight);
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
