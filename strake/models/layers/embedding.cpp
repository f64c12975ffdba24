#include "strake/models/layers/embedding.h"

#include <ATen/ops/empty.h>

#include "strake/kernels/embedding.h"
#include "strake/models/layers/node.h"

namespace strake::models::layers {
namespace {

template <typename T>
kernels::EmbeddingTable<const T> table(const Parameter& parameter, const at::Tensor& ids, const at::Tensor& on_host) {
  return {
      const_storage<T>(parameter.value), parameter.value.size(0), ids.const_data_ptr<int32_t>(),
      on_host.defined() ? kernels::HostIds{on_host.const_data_ptr<int32_t>(), on_host.numel()} : kernels::HostIds{}};
}

struct EmbeddingNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor dout = gradients[0].contiguous();
    add_rows(dout, tables.word, batch.input_ids);
    add_rows(dout, tables.position, tables.position_rows);
    if (tables.token_type) add_rows(dout, *tables.token_type, batch.token_type_ids);
    return {};
  }

  static void add_rows(const at::Tensor& dout, const Parameter& parameter, const at::Tensor& ids) {
    if (!is_trained(parameter)) return;
    GradientSink::Rows rows;
    if (ids.is_cpu()) rows = {ids.const_data_ptr<int32_t>(), static_cast<size_t>(ids.numel())};
    const at::Tensor gradient = parameter.sink->add_target(parameter.index, rows);
    dispatch_storage(dout, [&]<typename T>(T*, const auto& place) {
      kernels::embedding_backward<T>(
          {.dout = const_storage<T>(dout),
           .table = {storage<float>(gradient), gradient.size(0), ids.const_data_ptr<int32_t>()},
           .tokens = dout.size(0),
           .columns = dout.size(1)},
          place);
    });
  }

  EmbeddingTables tables;
  tensors::PackedBatch batch;
};

}  // namespace

at::Tensor embedding_sum(const EmbeddingTables& tables, const tensors::PackedBatch& batch) {
  const at::Tensor& word = tables.word.value;
  at::Tensor out = at::empty({batch.num_tokens(), word.size(1)}, word.options());
  const tensors::PackedBatch& host = batch.on_host();
  dispatch_storage(word, [&]<typename T>(T*, const auto& place) {
    kernels::EmbeddingForward<T> args{
        .word = table<T>(tables.word, batch.input_ids, host.input_ids),
        .position = table<T>(tables.position, tables.position_rows, tables.host_position_rows),
        .out = storage<T>(out),
        .tokens = out.size(0),
        .columns = out.size(1)};
    if (tables.token_type) args.type = table<T>(*tables.token_type, batch.token_type_ids, host.token_type_ids);
    kernels::embedding_forward<T>(args, place);
  });
  const bool types_are_trained = tables.token_type && is_trained(*tables.token_type);
  if (!is_trained(tables.word) && !is_trained(tables.position) && !types_are_trained) return out;
  auto node = std::make_shared<EmbeddingNode>();
  node->tables = tables;
  node->batch = batch;
  return attach(out, node);
}

PlannedTensor embedding_sum(PlannedGraph& graph, int64_t columns, Trained any_table) {
  PlannedTensor out = graph.empty(graph.tokens(), columns);
  graph.attach(
      {&out}, {}, {}, [](PlannedGraph::Saved&, const PlannedGraph::Saved&) -> PlannedGraph::Saved { return {}; },
      any_table);
  return out;
}

}  // namespace strake::models::layers
