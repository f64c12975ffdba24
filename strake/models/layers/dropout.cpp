#include "strake/models/layers/dropout.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "strake/models/layers/node.h"

namespace strake::models::layers {
namespace {

struct DropoutNode final : torch::autograd::Node {
  at::Tensor run(const at::Tensor& x) const {
    at::Tensor y = at::empty_like(x);
    dispatch_storage(x, [&]<typename T>(T*, const auto& place) {
      kernels::dropout<T>({.x = const_storage<T>(x),
                           .y = storage<T>(y),
                           .tokens = x.size(0),
                           .columns = x.size(1),
                           .dropout = dropout,
                           .index = {rows.const_data_ptr<int64_t>(), positions.const_data_ptr<int32_t>()}},
                          place);
    });
    return y;
  }
  // The mask is a function of the place, so the same call masks the gradient.
  variable_list apply(variable_list&& gradients) override { return {run(gradients[0].contiguous())}; }

  kernels::Dropout dropout;
  at::Tensor rows, positions;
};

at::Tensor apply_dropout(const at::Tensor& x, const kernels::Dropout& dropout, at::Tensor rows, at::Tensor positions) {
  auto node = std::make_shared<DropoutNode>();
  node->dropout = dropout;
  node->rows = std::move(rows);
  node->positions = std::move(positions);
  const at::Tensor y = without_recording([&] { return node->run(x); });
  return x.requires_grad() ? attach(y, node, x) : y;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, const kernels::Dropout& dropout, const StepContext& context) {
  return dropout.p == 0 ? x : apply_dropout(x, dropout, context.batch.token_rows, context.batch.positions);
}

at::Tensor dropout_of_sequences(const at::Tensor& x, const kernels::Dropout& dropout, const StepContext& context) {
  if (dropout.p == 0) return x;
  const int64_t count = context.batch.on_host().num_sequences();
  return apply_dropout(x, dropout, context.batch.token_rows.index_select(0, context.batch.offsets.narrow(0, 0, count)),
                       at::zeros({count}, x.options().dtype(at::kInt)));
}

PlannedTensor dropout(PlannedGraph& graph, const PlannedTensor& x, double p) {
  if (p == 0 || !graph.drops_out()) return x;
  PlannedTensor y = graph.empty_like(x);
  graph.attach({&y}, {x}, {},
               [&graph](PlannedGraph::Saved&, const PlannedGraph::Saved& gradients) -> PlannedGraph::Saved {
                 return {graph.empty_like(gradients[0])};
               });
  return y;
}

}  // namespace strake::models::layers
