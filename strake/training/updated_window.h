#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "strake/kernels/flat_window.h"

namespace strake::training {

// Calls `call` with a pointer of the kernels' storage type to the first element of `flat`.
template <typename Call>
auto with_storage(const at::Tensor& flat, const Call& call) {
  void* const data = flat.mutable_data_ptr();
  if (flat.scalar_type() == at::kBFloat16) return call(static_cast<kernels::BFloat16*>(data));
  if (flat.scalar_type() == at::kHalf) return call(static_cast<kernels::Half*>(data));
  return call(flat.mutable_data_ptr<float>());
}

// Elements of a unit that a rank updates, as windows of the tensors that hold them.
struct UpdatedWindow {
  at::Tensor parameters;           // [count], master weights: fp32, bf16 or fp16
  at::Tensor gradients;            // [count]: fp32, bf16 or fp16
  at::Tensor rounded;              // [count], bf16 or fp16; undefined where parameters are their own master weights
  std::vector<at::Tensor> states;  // [count] each: fp32 or bf16
  int64_t begin = 0;               // of the first one, in elements of the unit
};

// The window as kernels take it. Its tensors and `segments`, those of the unit, must outlive it.
kernels::FlatWindow flat_window(const UpdatedWindow& window, std::span<const kernels::TensorSegment> segments);

enum class HostMemory { kPaged, kPinned };

// The window for an update by the host, which has the states: a copy of the rest as far as it lies on `device`. What
// lies elsewhere is the host's, and is taken as it is.
UpdatedWindow copy_to_host(const UpdatedWindow& window, at::Device device, HostMemory memory);

// The window for an update by `device`, which has gradient and states: a copy there of what the host has of the rest.
UpdatedWindow copy_to_device(const UpdatedWindow& window, at::Device device);

// What the update wrote, back to where it was copied from.
void copy_back(const UpdatedWindow& copy, const UpdatedWindow& window);

}  // namespace strake::training
