#include "strake/training/gather_buffers.h"

#include <ATen/ops/empty.h>
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

at::DataPtr nothing(const at::Tensor& like) { return {nullptr, like.device()}; }

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

// Of a device too: from libtorch's allocator.
at::DataPtr allocate(const at::Tensor& like, size_t bytes) {
  if (like.is_cpu()) return allocate_pages(bytes);
  return exchange(at::empty({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte)), nothing(like), 0);
}

}  // namespace

void GatherBuffers::strip(const at::Tensor& tensor) { exchange(tensor, nothing(tensor), 0); }

void GatherBuffers::attach(const at::Tensor& tensor) {
  const size_t bytes = ScratchFile::whole_pages(static_cast<size_t>(tensor.numel()) * tensor.element_size());
  const auto fits = std::ranges::find(free_, bytes, &Buffer::bytes);
  if (fits == free_.end()) {
    exchange(tensor, allocate(tensor, bytes), bytes);
    return;
  }
  exchange(tensor, std::move(fits->data), bytes);
  free_.erase(fits);
}

void GatherBuffers::detach(const at::Tensor& tensor) {
  const size_t bytes = tensor.storage().nbytes();
  free_.push_back({bytes, exchange(tensor, nothing(tensor), 0)});
}

}  // namespace strake::training
