#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "strake/kernels/half.h"
#include "strake/models/block.h"
#include "strake/models/place.h"

// How strake's own layers take part in a block's autograd graph. A layer computes with recording off, then attaches a
// node that holds what its backward pass needs. Parameters are no part of the graph: a node hands their gradients
// straight to the sink, so that they land in the flat gradient buffer without a copy in between.
namespace strake::models::layers {

using torch::autograd::variable_list;

// Computes a layer's result outside of autograd.
template <typename Compute>
auto without_recording(const Compute& compute) {
  const c10::AutoGradMode off(false);
  return compute();
}

// A layer is part of the graph if a parameter is trained or an input needs a gradient.
inline bool is_trained(const Parameter& parameter) { return parameter.sink != nullptr; }

// Where a layer computes the gradient of a parameter: where the sink wants it, unless it has to be added to what is
// there, or the parameter is not trained.
class ComputedGradient {
 public:
  ComputedGradient(const Parameter& parameter, const at::Tensor& like) {
    if (is_trained(parameter)) target_ = parameter.sink->target(parameter.index);
    in_place_ = target_ && target_->store == kernels::Store::kOverwrite;
    gradient_ = in_place_ ? target_->gradient : at::empty(parameter.value.sizes(), like.options().dtype(at::kFloat));
  }

  float* data() const { return gradient_.mutable_data_ptr<float>(); }
  // It is computed.
  void hand_over() const {
    if (target_ && !in_place_) target_->gradient.add_(gradient_);
  }

 private:
  std::optional<GradientSink::Target> target_;
  bool in_place_ = false;
  at::Tensor gradient_;  // fp32, of the parameter's shape
};

// Makes `node` the origin of `output` in the graph. `inputs` are the tensors whose gradients node->apply returns, in
// order; ones that need none are allowed.
template <typename... Inputs>
at::Tensor attach(at::Tensor output, const std::shared_ptr<torch::autograd::Node>& node, const Inputs&... inputs) {
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  torch::autograd::set_history(output, node);
  return output;
}

// Calls `call` with a null pointer of the kernels' storage type for the tensor's dtype, and with the place for kernels,
// an Isa or OnCuda.
template <typename Call>
void dispatch_storage(const at::Tensor& like, const Call& call) {
  const c10::OptionalDeviceGuard guard(like.is_cuda() ? std::optional(like.device()) : std::nullopt);
  std::visit(
      [&](const auto& place) {
        if (like.scalar_type() == at::kFloat) {
          call(static_cast<float*>(nullptr), place);
        } else if (like.scalar_type() == at::kBFloat16) {
          call(static_cast<kernels::BFloat16*>(nullptr), place);
        } else {
          TORCH_INTERNAL_ASSERT(like.scalar_type() == at::kHalf);
          call(static_cast<kernels::Half*>(nullptr), place);
        }
      },
      place_of(like));
}

template <typename T>
T* storage(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

template <typename T>
const T* const_storage(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

inline kernels::TokenIndex token_index(const tensors::PackedBatch& batch) {
  return {batch.token_rows.const_data_ptr<int64_t>(), batch.positions.const_data_ptr<int32_t>()};
}

}  // namespace strake::models::layers
