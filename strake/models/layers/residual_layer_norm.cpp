#include "strake/models/layers/residual_layer_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "strake/kernels/residual_layer_norm.h"
#include "strake/models/layers/node.h"

namespace strake::models::layers {
namespace {

struct LayerNormNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dy = gradients.back().contiguous();
    const at::Tensor dsum_in = gradients.size() > 1 ? gradients.front().contiguous() : at::Tensor();
    const at::Tensor dsum = at::empty_like(dy);
    const at::Tensor dx = dropout.p > 0 ? at::empty_like(dy) : dsum;
    const ComputedGradient dgamma(norm.weight, dy);
    const ComputedGradient dbeta(norm.bias, dy);
    dispatch_storage(dy, [&]<typename T>(T*, const auto& place) {
      kernels::residual_layer_norm_backward<T>({.dy = const_storage<T>(dy),
                                                .sum = const_storage<T>(sum),
                                                .mean = const_storage<float>(mean),
                                                .rstd = const_storage<float>(rstd),
                                                .gamma = const_storage<T>(norm.weight.value),
                                                .dsum_in = dsum_in.defined() ? const_storage<T>(dsum_in) : nullptr,
                                                .dsum = storage<T>(dsum),
                                                .dx = storage<T>(dx),
                                                .dgamma = dgamma.data(),
                                                .dbeta = dbeta.data(),
                                                .tokens = dy.size(0),
                                                .columns = dy.size(1),
                                                .dropout = dropout,
                                                .index = token_index(batch)},
                                               place);
    });
    dgamma.hand_over();
    dbeta.hand_over();
    if (has_residual) return {dx, dsum};
    return {dx};
  }
  void release_variables() override { sum.reset(), mean.reset(), rstd.reset(); }

  at::Tensor sum, mean, rstd;
  LayerNormParameters norm;
  kernels::Dropout dropout;
  tensors::PackedBatch batch;
  bool has_residual = false;
};

// `residual` undefined: none.
std::pair<at::Tensor, std::shared_ptr<LayerNormNode>> compute(const at::Tensor& x, const at::Tensor& residual,
                                                              const LayerNormParameters& norm,
                                                              const kernels::Dropout& dropout,
                                                              const StepContext& context) {
  auto node = std::make_shared<LayerNormNode>();
  const bool is_sum = !residual.defined() && dropout.p == 0;  // then x is kept, and no copy of it
  node->sum = is_sum ? x.detach() : at::empty(x.sizes(), x.options());
  node->mean = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  node->rstd = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  node->norm = norm;
  node->dropout = dropout;
  node->batch = context.batch;
  node->has_residual = residual.defined();
  at::Tensor y = at::empty(x.sizes(), x.options());
  dispatch_storage(x, [&]<typename T>(T*, const auto& place) {
    kernels::residual_layer_norm_forward<T>({.x = const_storage<T>(x),
                                             .residual = residual.defined() ? const_storage<T>(residual) : nullptr,
                                             .gamma = const_storage<T>(norm.weight.value),
                                             .beta = const_storage<T>(norm.bias.value),
                                             .sum = is_sum ? nullptr : storage<T>(node->sum),
                                             .y = storage<T>(y),
                                             .mean = storage<float>(node->mean),
                                             .rstd = storage<float>(node->rstd),
                                             .tokens = x.size(0),
                                             .columns = x.size(1),
                                             .eps = static_cast<float>(norm.eps),
                                             .dropout = dropout,
                                             .index = token_index(context.batch)},
                                            place);
  });
  return {y, node};
}

bool records(const at::Tensor& x, const at::Tensor& residual, const LayerNormParameters& norm) {
  return is_trained(norm.weight) || is_trained(norm.bias) || x.requires_grad() ||
         (residual.defined() && residual.requires_grad());
}

PlannedGraph::Backward planned_backward(PlannedGraph& graph, double dropout) {
  return [&graph, dropout](PlannedGraph::Saved& saved, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
    const PlannedTensor dsum = graph.empty_like(saved[0]);
    const PlannedTensor dx = dropout > 0 ? graph.empty_like(saved[0]) : dsum;
    return {dx, dsum};
  };
}

}  // namespace

at::Tensor residual_layer_norm(const at::Tensor& x, const at::Tensor& residual, const LayerNormParameters& norm,
                               const kernels::Dropout& dropout, const StepContext& context) {
  auto [y, node] = compute(x, residual, norm, dropout, context);
  return records(x, residual, norm) ? attach(y, node, x, residual) : y;
}

NormedSum residual_sum_and_norm(const at::Tensor& x, const at::Tensor& residual, const LayerNormParameters& norm,
                                const kernels::Dropout& dropout, const StepContext& context) {
  auto [y, node] = compute(x, residual, norm, dropout, context);
  at::Tensor sum = node->sum.detach();  // a tensor of its own: the node must not own an output that owns the node
  if (!records(x, residual, norm)) return {sum, y};
  sum = attach(sum, node, x, residual);
  torch::autograd::set_history(y, node);
  return {sum, y};
}

at::Tensor layer_norm(const at::Tensor& x, const LayerNormParameters& norm, const StepContext& context) {
  auto [y, node] = compute(x, {}, norm, {}, context);
  return records(x, {}, norm) ? attach(y, node, x) : y;
}

PlannedTensor residual_layer_norm(PlannedGraph& graph, const PlannedTensor& x, const PlannedTensor& residual,
                                  double dropout, const TrainedAffine& trained) {
  const PlannedTensor sum = graph.empty_like(x);
  const PlannedTensor mean_and_rstd = graph.empty(x.rows, 2, sizeof(float));
  PlannedTensor y = graph.empty_like(x);
  graph.attach({&y}, {x, residual}, {sum, mean_and_rstd}, planned_backward(graph, dropout), trained.any());
  return y;
}

PlannedNormedSum residual_sum_and_norm(PlannedGraph& graph, const PlannedTensor& x, const PlannedTensor& residual,
                                       double dropout, const TrainedAffine& trained) {
  PlannedTensor sum = graph.empty_like(x);
  const PlannedTensor mean_and_rstd = graph.empty(x.rows, 2, sizeof(float));
  PlannedTensor y = graph.empty_like(x);
  graph.attach({&sum, &y}, {x, residual}, {sum, mean_and_rstd}, planned_backward(graph, dropout), trained.any());
  return {sum, y};
}

PlannedTensor layer_norm(PlannedGraph& graph, const PlannedTensor& x, const TrainedAffine& trained) {
  const PlannedTensor mean_and_rstd = graph.empty(x.rows, 2, sizeof(float));
  PlannedTensor y = graph.empty_like(x);
  graph.attach({&y}, {x, PlannedTensor()}, {x, mean_and_rstd}, planned_backward(graph, 0), trained.any());
  return y;
}

}  // namespace strake::models::layers
