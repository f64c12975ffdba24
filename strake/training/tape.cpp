#include "strake/training/tape.h"

#include <c10/core/GradMode.h>

namespace strake::training {
namespace {

// `input` as the beginning of a graph.
at::Tensor as_leaf(const at::Tensor& input) { return input.detach().requires_grad_(); }

at::Tensor forward_without_graph(const models::Block& block, models::Parameters parameters, const at::Tensor& input,
                                 const models::StepContext& context) {
  const c10::AutoGradMode no_graph(false);
  for (models::Parameter& parameter : parameters) parameter.sink = nullptr;
  return block.forward(parameters, input, context);
}

}  // namespace

at::Tensor Tape::forward(const models::Block& block, const models::Parameters& parameters, const at::Tensor& input,
                         const models::StepContext& context, Keep keep) {
  if (keep != Keep::kGraph) {
    const bool moves = keep == Keep::kInputOnHost && input.defined();
    if (keep != Keep::kNothing) records_.push_back({.input = moves ? input.cpu() : input, .output = {}});
    return forward_without_graph(block, parameters, input, context);
  }
  const at::Tensor leaf = records_.empty() ? input : as_leaf(input);
  at::Tensor output = block.forward(parameters, leaf, context);
  records_.push_back({leaf, output});
  return output.detach();
}

at::Tensor Tape::backward(const models::Block& block, const models::Parameters& parameters,
                          const at::Tensor& output_gradient, const models::StepContext& context) {
  Record record = std::move(records_.back());
  records_.pop_back();
  if (!record.output.defined()) {
    if (record.input.defined()) record.input = record.input.to(output_gradient.device());
    if (!records_.empty()) record.input = as_leaf(record.input);
    record.output = block.forward(parameters, record.input, context);
  }
  record.output.backward(output_gradient);
  return records_.empty() ? at::Tensor() : record.input.grad();
}

}  // namespace strake::training
