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

}  // namespace

kernels::FlatWindow flat_window(const UpdatedWindow& window, std::span<const kernels::TensorSegment> segments) {
  kernels::FlatWindow flat{.begin = window.begin, .count = window.parameters.numel(), .segments = segments};
  point(flat.parameters, window.parameters);
  point(flat.gradients, window.gradients);
  if (window.rounded.defined()) point(flat.rounded, window.rounded);
  for (size_t k = 0; k < window.states.size(); ++k) point(flat.states[k], window.states[k]);
  return flat;
}

// Of `rounded` too: an update does not write what it need not change.
UpdatedWindow copy_to_host(const UpdatedWindow& window, at::Device device, HostMemory memory) {
  UpdatedWindow host = window;
  for (at::Tensor* values : {&host.parameters, &host.gradients, &host.rounded}) {
    if (!values->defined() || values->device() != device) continue;
    const auto on_host = values->options().device(at::kCPU).pinned_memory(memory == HostMemory::kPinned);
    *values = at::empty({values->numel()}, on_host).copy_(*values);
  }
  return host;
}

void copy_back(const UpdatedWindow& host, const UpdatedWindow& window) {
  if (!host.parameters.is_same(window.parameters)) window.parameters.copy_(host.parameters);
  if (!host.rounded.is_same(window.rounded)) window.rounded.copy_(host.rounded);
}

}  // namespace strake::training
