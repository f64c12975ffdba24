#include "strake/models/encoder/span_head.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>

#include <vector>

namespace strake::models {

SpanHeadBlock::SpanHeadBlock(const EncoderConfig& config, uint32_t dropout_site)
    : TokenHeadBlock(config, "qa_outputs", 2, {.site = dropout_site, .probability = config.span_dropout}) {}

at::Tensor SpanHeadBlock::forward(const Parameters& parameters, const at::Tensor& input,
                                  const StepContext& context) const {
  const at::Tensor logits = TokenHeadBlock::forward(parameters, input, context).to(at::kFloat);
  const at::Tensor& offsets = context.batch.on_host().offsets;
  const auto* begin = offsets.const_data_ptr<int32_t>();
  // Sequence by sequence: its numbers do not depend on its neighbours.
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i + 1 < offsets.numel(); ++i) {
    parts.push_back(logits.narrow(0, begin[i], begin[i + 1] - begin[i]).log_softmax(0));
  }
  const int64_t end = begin[offsets.numel() - 1];
  if (end < logits.size(0)) parts.push_back(logits.narrow(0, end, logits.size(0) - end));
  return at::cat(parts);
}

PlannedTensor SpanHeadBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  const PlannedTensor logits = TokenHeadBlock::plan(graph, input);
  const PlannedTensor parts = graph.empty(logits.rows, logits.columns, sizeof(float));
  PlannedTensor joined = graph.empty_like(parts);
  graph.attach({&joined}, {logits}, {parts},
               [&graph, rows = logits.rows](PlannedGraph::Saved&, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
                 return {graph.empty(rows, 2)};
               });
  return joined;
}

}  // namespace strake::models
