#include "strake/models/gpt2/layer.h"

#include <ATen/ops/add.h>
#include <fmt/format.h>

#include <cmath>

#include "strake/models/layers/attention.h"
#include "strake/models/layers/dropout.h"
#include "strake/models/layers/linear.h"
#include "strake/models/layers/residual_layer_norm.h"

namespace strake::models {

Gpt2LayerBlock::Gpt2LayerBlock(const Gpt2Config& config, int64_t layer, uint32_t first_site)
    : Block(fmt::format("layer.{}", layer)),
      shape_{.hidden_size = config.hidden_size,
             .intermediate_size = config.intermediate_size,
             .num_heads = config.num_heads,
             .activation = config.activation,
             .layer_norm_eps = config.layer_norm_eps,
             .attention_dropout = config.attention_dropout,
             .residual_dropout = config.residual_dropout,
             .scale_attention = config.scale_attention},
      first_site_(first_site) {
  const std::string source = fmt::format("transformer.h.{}.", layer);
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  // What is added to the stream starts smaller, as there are 2 such sums a layer (section 2.3 of the paper).
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  attention_norm_ = add_norm(name() + ".attention.norm", source + "ln_1", hidden);
  qkv_ = add_projection({"attention.qkv", source + "attn.c_attn", 3 * hidden, hidden});
  attention_output_ = add_projection({"attention.output", source + "attn.c_proj", hidden, hidden, residual_scale});
  feed_forward_norm_ = add_norm(name() + ".feed_forward.norm", source + "ln_2", hidden);
  intermediate_ = add_projection({"feed_forward.in", source + "mlp.c_fc", inner, hidden});
  output_ = add_projection({"feed_forward.out", source + "mlp.c_proj", hidden, inner, residual_scale});
}

Affine Gpt2LayerBlock::add_projection(const Projection& projection) {
  const std::string full_name = fmt::format("{}.{}", name(), projection.name);
  const size_t weight = add({.name = full_name + ".weight",
                             .shape = {projection.outputs, projection.inputs},
                             .checkpoint_names = {projection.checkpoint_name + ".weight"},
                             .stored_as = StoredAs::kTransposed,
                             .initial_scale = projection.initial_scale});
  const size_t bias = add({.name = full_name + ".bias",
                           .shape = {projection.outputs},
                           .initialization = Initialization::kZeros,
                           .decay = WeightDecay::kExempt,
                           .checkpoint_names = {projection.checkpoint_name + ".bias"}});
  return {weight, bias};
}

at::Tensor Gpt2LayerBlock::forward(const Parameters& p, const at::Tensor& input, const StepContext& context) const {
  const double eps = shape_.layer_norm_eps;
  const auto scale = shape_.scale_attention ? std::nullopt : std::optional(1.0F);
  const at::Tensor normed =
      layers::layer_norm(input, {p[attention_norm_.weight], p[attention_norm_.bias], eps}, context);
  const at::Tensor qkv = layers::linear(normed, p[qkv_.weight], p[qkv_.bias]);
  const at::Tensor attended =
      layers::self_attention(qkv,
                             {.num_heads = shape_.num_heads,
                              .mask = kernels::AttentionMask::kCausal,
                              .scale = scale,
                              .dropout = context.dropout(first_site_, shape_.attention_dropout)},
                             context);
  const at::Tensor projected = layers::linear(attended, p[attention_output_.weight], p[attention_output_.bias]);
  const layers::NormedSum hidden =
      layers::residual_sum_and_norm(projected, input, {p[feed_forward_norm_.weight], p[feed_forward_norm_.bias], eps},
                                    context.dropout(first_site_ + 1, shape_.residual_dropout), context);
  const at::Tensor activated =
      layers::linear_activation(hidden.norm, p[intermediate_.weight], p[intermediate_.bias], shape_.activation);
  const at::Tensor output = layers::linear(activated, p[output_.weight], p[output_.bias]);
  const at::Tensor dropped =
      layers::dropout(output, context.dropout(first_site_ + 2, shape_.residual_dropout), context);
  return at::add(hidden.sum, dropped);
}

PlannedTensor Gpt2LayerBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  const PlannedTensor normed = layers::layer_norm(graph, input, trained(attention_norm_));
  const PlannedTensor qkv = layers::linear(graph, normed, 3 * shape_.hidden_size, trained(qkv_));
  const PlannedTensor attended = layers::self_attention(
      graph, qkv,
      {.num_heads = shape_.num_heads, .mask = kernels::AttentionMask::kCausal, .dropout = shape_.attention_dropout});
  const PlannedTensor projected = layers::linear(graph, attended, shape_.hidden_size, trained(attention_output_));
  const layers::PlannedNormedSum hidden =
      layers::residual_sum_and_norm(graph, projected, input, shape_.residual_dropout, trained(feed_forward_norm_));
  const PlannedTensor activated =
      layers::linear_activation(graph, hidden.norm, shape_.intermediate_size, trained(intermediate_));
  const PlannedTensor output = layers::linear(graph, activated, shape_.hidden_size, trained(output_));
  const PlannedTensor dropped = layers::dropout(graph, output, shape_.residual_dropout);
  PlannedTensor sum = graph.empty_like(dropped);
  graph.attach({&sum}, {hidden.sum, dropped}, {},
               [](PlannedGraph::Saved&, const PlannedGraph::Saved& gradients) -> PlannedGraph::Saved {
                 return {gradients[0], gradients[0]};
               });
  return sum;
}

}  // namespace strake::models
