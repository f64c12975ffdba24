#include "strake/models/encoder/layer.h"

#include <fmt/format.h>

#include <cmath>

#include "strake/models/layers/attention.h"
#include "strake/models/layers/linear.h"
#include "strake/models/layers/residual_layer_norm.h"
#include "strake/models/layers/select_tokens.h"

namespace strake::models {

EncoderLayerBlock::EncoderLayerBlock(const EncoderConfig& config, const EncoderNames& names, const Place& place)
    : Block(fmt::format("layer.{}", place.layer)),
      shape_{.hidden_size = config.hidden_size,
             .intermediate_size = config.intermediate_size,
             .num_heads = config.num_attention_heads,
             .activation = config.hidden_act,
             .layer_norm_eps = config.layer_norm_eps,
             .attention_dropout = config.attention_dropout,
             .attention_output_dropout = config.attention_output_dropout,
             .output_dropout = config.hidden_dropout},
      place_(place) {
  const auto source = [&](const char* name) { return names.prefix + fmt::format(fmt::runtime(name), place.layer); };
  const int64_t hidden = config.hidden_size;
  qkv_ = add_projection("attention.qkv", {source(names.query), source(names.key), source(names.value)}, 3 * hidden,
                        hidden);
  attention_output_ = add_projection("attention.output", {source(names.attention_output)}, hidden, hidden);
  attention_norm_ = add_norm(this->name() + ".attention.norm", source(names.attention_norm), hidden);
  intermediate_ = add_projection("feed_forward.in", {source(names.intermediate)}, config.intermediate_size, hidden);
  output_ = add_projection("feed_forward.out", {source(names.output)}, hidden, config.intermediate_size);
  output_norm_ = add_norm(this->name() + ".feed_forward.norm", source(names.output_norm), hidden);
}

Affine EncoderLayerBlock::add_projection(const char* name, const std::vector<std::string>& sources, int64_t outputs,
                                         int64_t inputs) {
  ParameterSpec weight{.name = fmt::format("{}.{}.weight", this->name(), name), .shape = {outputs, inputs}};
  ParameterSpec bias{.name = fmt::format("{}.{}.bias", this->name(), name),
                     .shape = {outputs},
                     .initialization = Initialization::kZeros,
                     .decay = WeightDecay::kExempt};
  for (const std::string& source : sources) {
    weight.checkpoint_names.push_back(source + ".weight");
    bias.checkpoint_names.push_back(source + ".bias");
  }
  const size_t weight_index = add(std::move(weight));
  return {weight_index, add(std::move(bias))};
}

at::Tensor EncoderLayerBlock::forward(const Parameters& p, const at::Tensor& input, const StepContext& context) const {
  const at::Tensor qkv = layers::linear(input, p[qkv_.weight], p[qkv_.bias]);
  const at::Tensor attended = layers::self_attention(
      qkv, {.num_heads = shape_.num_heads, .dropout = context.dropout(place_.first_site, shape_.attention_dropout)},
      context);
  if (place_.output == Output::kAllTokens) return after_attention(p, attended, input, context);
  const at::Tensor places = place_.output == Output::kFirstTokens ? layers::first_places(context.batch)
                                                                  : layers::masked_places(context.batch);
  const tensors::PackedBatch some = layers::tokens_at(context.batch, places);
  return after_attention(p, layers::select_tokens(attended, places), layers::select_tokens(input, places),
                         {.batch = some, .dropout_key = context.dropout_key, .loss_divisor = context.loss_divisor});
}

at::Tensor EncoderLayerBlock::after_attention(const Parameters& p, const at::Tensor& attended,
                                              const at::Tensor& residual, const StepContext& context) const {
  const double eps = shape_.layer_norm_eps;
  const at::Tensor projected = layers::linear(attended, p[attention_output_.weight], p[attention_output_.bias]);
  const at::Tensor hidden =
      layers::residual_layer_norm(projected, residual, {p[attention_norm_.weight], p[attention_norm_.bias], eps},
                                  context.dropout(place_.first_site + 1, shape_.attention_output_dropout), context);
  const at::Tensor activated =
      layers::linear_activation(hidden, p[intermediate_.weight], p[intermediate_.bias], shape_.activation);
  const at::Tensor output = layers::linear(activated, p[output_.weight], p[output_.bias]);
  return layers::residual_layer_norm(output, hidden, {p[output_norm_.weight], p[output_norm_.bias], eps},
                                     context.dropout(place_.first_site + 2, shape_.output_dropout), context);
}

PlannedTensor EncoderLayerBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  const PlannedTensor qkv = layers::linear(graph, input, 3 * shape_.hidden_size, trained(qkv_));
  PlannedTensor attended = layers::self_attention(
      graph, qkv,
      {.num_heads = shape_.num_heads, .mask = kernels::AttentionMask::kFull, .dropout = shape_.attention_dropout});
  PlannedTensor residual = input;
  if (place_.output != Output::kAllTokens) {
    const bool is_first = place_.output == Output::kFirstTokens;
    const int64_t places = is_first ? graph.batch().sequences : graph.batch().targets;
    attended = layers::select_tokens(graph, attended, places);
    residual = layers::select_tokens(graph, residual, places);
  }
  const PlannedTensor projected = layers::linear(graph, attended, shape_.hidden_size, trained(attention_output_));
  const PlannedTensor hidden = layers::residual_layer_norm(graph, projected, residual, shape_.attention_output_dropout,
                                                           trained(attention_norm_));
  const PlannedTensor activated =
      layers::linear_activation(graph, hidden, shape_.intermediate_size, trained(intermediate_));
  const PlannedTensor output = layers::linear(graph, activated, shape_.hidden_size, trained(output_));
  return layers::residual_layer_norm(graph, output, hidden, shape_.output_dropout, trained(output_norm_));
}

}  // namespace strake::models
