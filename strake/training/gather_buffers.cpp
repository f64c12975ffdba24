#include "strake/training/gather_buffers.h"

#include <algorithm>

#include "strake/core/scratch_file.h"

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
  constexpr size_t kPage = ScratchFile::kAlignment;
  const size_t bytes = (static_cast<size_t>(tensor.numel()) * tensor.element_size() + kPage - 1) / kPage * kPage;
  const auto fits = std::ranges::find(free_, bytes, &Buffer::bytes);
  if (fits == free_.end()) {
    std::byte* memory = allocate_aligned(bytes).release();
    exchange(tensor, {memory, memory, [](void* p) { FreeAligned()(static_cast<std::byte*>(p)); }, at::kCPU}, bytes);
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
