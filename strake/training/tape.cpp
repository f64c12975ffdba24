#include "strake/training/tape.h"

namespace strake::training {

at::Tensor Tape::forward(const models::Block& block, const models::Parameters& parameters, const at::Tensor& input,
                         const models::StepContext& context) {
  at::Tensor leaf;
  if (input.defined()) leaf = input.detach().requires_grad_();
  at::Tensor output = block.forward(parameters, leaf, context);
  records_.push_back({leaf, output});
  return output.detach();
}

at::Tensor Tape::backward(const at::Tensor& output_gradient) {
  Record record = std::move(records_.back());
  records_.pop_back();
  record.output.backward(output_gradient);
  return record.input.defined() ? record.input.grad() : at::Tensor();
}

}  // namespace strake::training
