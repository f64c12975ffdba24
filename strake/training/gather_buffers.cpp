#include "strake/training/gather_buffers.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <memory>

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

// From libtorch's allocator, so that it is counted with all tensor memory.
at::DataPtr allocate_pages(size_t bytes) {
  constexpr size_t kPage = ScratchFile::kAlignment;
  auto whole = std::make_unique<at::DataPtr>(c10::GetCPUAllocator()->allocate(bytes + kPage));
  void* begin = whole->get();
  size_t room = bytes + kPage;
  std::align(kPage, bytes, begin, room);
  return {begin, whole.release(), [](void* owner) { std::unique_ptr<at::DataPtr>(static_cast<at::DataPtr*>(owner)); },
          at::kCPU};
}

}  // namespace

void GatherBuffers::strip(const at::Tensor& tensor) { exchange(tensor, at::DataPtr(), 0); }

void GatherBuffers::attach(const at::Tensor& tensor) {
  constexpr size_t kPage = ScratchFile::kAlignment;
  const size_t bytes = (static_cast<size_t>(tensor.numel()) * tensor.element_size() + kPage - 1) / kPage * kPage;
  const auto fits = std::ranges::find(free_, bytes, &Buffer::bytes);
  if (fits == free_.end()) {
    exchange(tensor, allocate_pages(bytes), bytes);
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
