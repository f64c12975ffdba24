#include "strake/models/layers/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

#include "strake/kernels/cuda/on_cuda.h"
#include "strake/models/layers/node.h"

namespace strake::models::layers {
namespace {

// AttentionShape::kept; undefined where there is none.
at::Tensor empty_kept(const at::Tensor& qkv, const AttentionOptions& options, const tensors::PackedBatch& batch) {
  if (!qkv.is_cuda() || options.dropout.p == 0) return {};
  const tensors::PackedBatch& host = batch.on_host();
  const auto* offsets = host.offsets.const_data_ptr<int32_t>();
  int64_t longest = batch.num_tokens() - host.num_tokens();  // of those that fill it up
  for (int64_t s = 0; s < host.num_sequences(); ++s) longest = std::max<int64_t>(longest, offsets[s + 1] - offsets[s]);
  return at::empty({options.num_heads, batch.num_tokens(), kernels::kept_bytes_of(longest)},
                   qkv.options().dtype(at::kByte));
}

kernels::AttentionShape shape_of(const at::Tensor& qkv, const AttentionOptions& options,
                                 const tensors::PackedBatch& batch, const at::Tensor& kept) {
  const int64_t head_dim = qkv.size(1) / 3 / options.num_heads;
  return {.offsets = batch.offsets.const_data_ptr<int32_t>(),
          .num_sequences = batch.num_sequences(),
          .num_tokens = batch.num_tokens(),
          .num_heads = options.num_heads,
          .head_dim = head_dim,
          .scale = options.scale.value_or(1.0F / std::sqrt(static_cast<float>(head_dim))),
          .mask = options.mask,
          .dropout = options.dropout,
          .index = token_index(batch),
          .kept = kept.defined() ? storage<uint8_t>(kept) : nullptr,
          .kept_bytes = kept.defined() ? kept.size(2) : 0};
}

struct AttentionNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dout = gradients[0].contiguous();
    at::Tensor dqkv = at::empty_like(qkv);
    const int64_t width = qkv.size(1) / 3;
    dispatch_storage(qkv, [&]<typename T>(T*, const auto& place) {
      const T* in = const_storage<T>(qkv);
      T* grad = storage<T>(dqkv);
      kernels::attention_backward<T>({.shape = shape_of(qkv, options, batch, kept),
                                      .q = in,
                                      .k = in + width,
                                      .v = in + 2 * width,
                                      .qkv_stride = 3 * width,
                                      .out = const_storage<T>(out),
                                      .dout = const_storage<T>(dout),
                                      .out_stride = width,
                                      .lse = const_storage<float>(lse),
                                      .dq = grad,
                                      .dk = grad + width,
                                      .dv = grad + 2 * width,
                                      .grad_stride = 3 * width},
                                     place);
    });
    return {dqkv};
  }
  void release_variables() override { qkv.reset(), out.reset(), lse.reset(), kept.reset(); }

  at::Tensor qkv, out, lse, kept;
  AttentionOptions options;
  tensors::PackedBatch batch;
};

// Tokens that see each other: causal attention sees no later ones.
double pairs_of(const BatchShape& batch, kernels::AttentionMask mask) {
  if (mask == kernels::AttentionMask::kFull) return batch.squared_lengths;
  return (batch.squared_lengths + static_cast<double>(batch.tokens)) / 2;
}

}  // namespace

at::Tensor self_attention(const at::Tensor& qkv, const AttentionOptions& options, const StepContext& context) {
  const int64_t width = qkv.size(1) / 3;
  at::Tensor out = at::empty({qkv.size(0), width}, qkv.options());
  const at::Tensor lse = at::empty({qkv.size(0), options.num_heads}, qkv.options().dtype(at::kFloat));
  const at::Tensor kept = qkv.requires_grad() ? empty_kept(qkv, options, context.batch) : at::Tensor();
  dispatch_storage(qkv, [&]<typename T>(T*, const auto& place) {
    const T* in = const_storage<T>(qkv);
    kernels::attention_forward<T>({.shape = shape_of(qkv, options, context.batch, kept),
                                   .q = in,
                                   .k = in + width,
                                   .v = in + 2 * width,
                                   .qkv_stride = 3 * width,
                                   .out = storage<T>(out),
                                   .out_stride = width,
                                   .lse = storage<float>(lse)},
                                  place);
  });
  if (!qkv.requires_grad()) return out;
  auto node = std::make_shared<AttentionNode>();
  node->qkv = qkv.detach();
  node->out = out;
  node->lse = lse;
  node->kept = kept;
  node->options = options;
  node->batch = context.batch;
  return attach(out.detach(), node, qkv);
}

PlannedTensor self_attention(PlannedGraph& graph, const PlannedTensor& qkv, const PlannedAttention& options) {
  if (graph.is_on_gpu()) kernels::require_attention_heads(options.num_heads, qkv.columns / 3 / options.num_heads);
  PlannedTensor out = graph.empty(qkv.rows, qkv.columns / 3);
  // Scores and their product with the values; backward takes twice that, without the scores that it computes again.
  const double flops = 4 * static_cast<double>(out.columns) * pairs_of(graph.batch(), options.mask);
  graph.compute(flops);
  const PlannedTensor lse = graph.empty(qkv.rows, options.num_heads, sizeof(float));
  PlannedTensor kept;
  if (graph.is_on_gpu() && graph.drops_out() && options.dropout > 0 && graph.records({qkv})) {
    kept = graph.empty(options.num_heads * qkv.rows, kernels::kept_bytes_of(graph.batch().longest), 1);
  }
  graph.attach({&out}, {qkv}, {qkv, out, lse, kept},
               [&graph, flops](PlannedGraph::Saved& saved, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
                 graph.compute(2 * flops);
                 return {graph.empty_like(saved[0])};
               });
  return out;
}

}  // namespace strake::models::layers
