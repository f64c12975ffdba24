#include "strake/training/gather_buffers.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

namespace strake::training {
namespace {

// Replaces the memory under `tensor` and all its views; returns the old one.
at::DataPtr exchange(const at::Tensor& tensor, at::DataPtr data, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  at::DataPtr old = storage->set_data_ptr(std::move(data));
  storage->set_nbytes(bytes);
  return old;
}

}  // namespace

void GatherBuffers::strip(const at::Tensor& tensor) { exchange(tensor, at::DataPtr(), 0); }

void GatherBuffers::attach(const at::Tensor& tensor) {
  const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  const auto fits = std::ranges::find(free_, bytes, &Buffer::bytes);
  if (fits == free_.end()) {
    const at::Tensor fresh = at::empty_like(tensor);
    exchange(tensor, exchange(fresh, at::DataPtr(), 0), bytes);
    return;
  }
  exchange(tensor, std::move(fits->data), bytes);
  free_.erase(fits);
}

void GatherBuffers::detach(const at::Tensor& tensor) {
  const size_t bytes = tensor.storage().nbytes();
  free_.push_back({bytes, exchange(tensor, at::DataPtr(), 0)});
}

}  // namespace strake::training
