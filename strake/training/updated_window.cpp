#include "strake/training/updated_window.h"

#include <ATen/ops/empty.h>

#include <type_traits>

namespace strake::training {
namespace {

// `place` is one of the types that a tensor of a window may have; a tensor of another type leaves it as it is.
template <typename Place>
void point(Place& place, const at::Tensor& flat) {
  with_storage(flat, [&](auto* data) {
    if constexpr (std::is_assignable_v<Place&, decltype(data)>) place = data;
  });
}

// With copies of what lies on `from`. Of `rounded` too: an update does not write what it need not change.
UpdatedWindow copied(const UpdatedWindow& window, at::Device from, const at::TensorOptions& to) {
  UpdatedWindow copy = window;
  for (at::Tensor* values : {&copy.parameters, &copy.gradients, &copy.rounded}) {
    if (!values->defined() || values->device() != from) continue;
    *values = at::empty({values->numel()}, to.dtype(values->scalar_type())).copy_(*values);
  }
  return copy;
}

}  // namespace

kernels::FlatWindow flat_window(const UpdatedWindow& window, std::span<const kernels::TensorSegment> segments) {
  kernels::FlatWindow flat{.begin = window.begin, .count = window.parameters.numel(), .segments = segments};
  point(flat.parameters, window.parameters);
  point(flat.gradients, window.gradients);
  if (window.rounded.defined()) point(flat.rounded, window.rounded);
  for (size_t k = 0; k < window.states.size(); ++k) point(flat.states[k], window.states[k]);
  return flat;
}

UpdatedWindow copy_to_host(const UpdatedWindow& window, at::Device device, HostMemory memory) {
  const auto host = at::TensorOptions(at::kCPU).pinned_memory(memory == HostMemory::kPinned);
  return copied(window, device, host);
}

UpdatedWindow copy_to_device(const UpdatedWindow& window, at::Device device) {
  return copied(window, at::kCPU, at::TensorOptions(device));
}

void copy_back(const UpdatedWindow& copy, const UpdatedWindow& window) {
  if (!copy.parameters.is_same(window.parameters)) window.parameters.copy_(copy.parameters);
  if (!copy.rounded.is_same(window.rounded)) window.rounded.copy_(copy.rounded);
}

}  // namespace strake::training
