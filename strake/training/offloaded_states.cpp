#include "strake/training/offloaded_states.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>

#include "strake/core/error.h"

namespace strake::training {
namespace {

constexpr uint64_t kPage = ScratchFile::kAlignment;

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::vector<OffloadedStates::Slot> OffloadedStates::layout(std::span<const int64_t> counts,
                                                           const std::vector<at::ScalarType>& arrays,
                                                           int64_t window_elements) {
  std::vector<Slot> slots;
  uint64_t offset = 0;
  for (size_t block = 0; block < counts.size(); ++block) {
    for (int64_t begin = 0; begin < counts[block]; begin += window_elements) {
      const int64_t count = std::min(window_elements, counts[block] - begin);
      Slot& slot = slots.emplace_back(Slot{.window = {block, begin, count}, .offset = offset, .arrays = {0}});
      for (const at::ScalarType dtype : arrays) {
        slot.arrays.push_back(slot.bytes() + whole_pages(static_cast<uint64_t>(count) * c10::elementSize(dtype)));
      }
      offset += slot.bytes();
    }
  }
  return slots;
}

uint64_t OffloadedStates::end_of(const std::vector<Slot>& slots) {
  return slots.empty() ? 0 : slots.back().offset + slots.back().bytes();
}

uint64_t OffloadedStates::disk_bytes(std::span<const int64_t> counts, const std::vector<at::ScalarType>& arrays,
                                     int64_t window_elements) {
  return end_of(layout(counts, arrays, window_elements));
}

OffloadedStates::OffloadedStates(std::span<const int64_t> counts, std::vector<at::ScalarType> arrays,
                                 const Options& options)
    : dtypes_(std::move(arrays)),
      slots_(layout(counts, dtypes_, options.window_elements)),
      counts_(counts.begin(), counts.end()),
      file_(options.folder, end_of(slots_), options.file) {
  constexpr int64_t kPageElements = 2048;  // of two bytes
  require(options.window_elements > 0 && options.window_elements % kPageElements == 0 && options.buffers >= 2,
          ErrorKind::kInternal, "offloaded states: windows of {} elements, {} buffers", options.window_elements,
          options.buffers);
  for (const Slot& slot : slots_) buffer_bytes_ = std::max(buffer_bytes_, slot.bytes());
  num_buffers_ = std::min(static_cast<size_t>(options.buffers), slots_.size());
  if (num_buffers_ == 0) return;
  size_t room = num_buffers_ * buffer_bytes_ + kPage;
  memory_ = at::empty({static_cast<int64_t>(room)}, at::kByte);
  void* begin = memory_.mutable_data_ptr();
  first_buffer_ = static_cast<std::byte*>(std::align(kPage, num_buffers_ * buffer_bytes_, begin, room));
}

// Buffer w % B holds window w. It is read when window w - B has been written, so up to B - 1 windows are on their way
// while one is updated.
void OffloadedStates::update_all(const Update& update) {
  const size_t depth = num_buffers_;
  std::vector<uint64_t> tickets(slots_.size());
  const auto bytes = [&](size_t w) { return std::span<std::byte>(buffer(w % depth), slots_[w].bytes()); };
  const auto start_read = [&](size_t w) { tickets[w] = file_.read(slots_[w].offset, bytes(w)); };
  const size_t ahead = std::max<size_t>(1, depth / 2);
  for (size_t w = 0; w < std::min(ahead, slots_.size()); ++w) start_read(w);
  std::vector<void*> arrays(dtypes_.size());
  size_t written = 0;  // windows below this are on disk
  for (size_t w = 0; w < slots_.size(); ++w) {
    file_.wait(tickets[w]);
    for (size_t k = 0; k < arrays.size(); ++k) arrays[k] = bytes(w).data() + slots_[w].arrays[k];
    const size_t next = w + ahead;
    if (next < slots_.size()) {
      for (; written + depth <= next; ++written) file_.wait(tickets[written]);
      start_read(next);
    }
    update(slots_[w].window, arrays);
    tickets[w] = file_.write(slots_[w].offset, bytes(w));
  }
  for (; written < slots_.size(); ++written) file_.wait(tickets[written]);
}

at::Tensor OffloadedStates::in_buffer(const Slot& slot, int array) const {
  return at::from_blob(buffer(0), {slot.window.count}, dtypes_[static_cast<size_t>(array)]);
}

at::Tensor OffloadedStates::read(size_t block, int array) {
  at::Tensor values = at::empty({counts_[block]}, dtypes_[static_cast<size_t>(array)]);
  read(block, array, values);
  return values;
}

void OffloadedStates::read(size_t block, int array, const at::Tensor& target) {
  require(target.numel() == counts_[block], ErrorKind::kInternal, "offloaded states: {} values for {} elements",
          target.numel(), counts_[block]);
  for (const Slot& slot : slots_) {
    if (slot.window.block != block) continue;
    file_.wait(file_.read(slot.offset + slot.arrays[static_cast<size_t>(array)], {buffer(0), slot.array_bytes(array)}));
    target.narrow(0, slot.window.begin, slot.window.count).copy_(in_buffer(slot, array));
  }
}

void OffloadedStates::write(size_t block, int array, const at::Tensor& values) {
  require(values.numel() == counts_[block], ErrorKind::kInternal, "offloaded states: {} values for {} elements",
          values.numel(), counts_[block]);
  for (const Slot& slot : slots_) {
    if (slot.window.block != block) continue;
    in_buffer(slot, array).copy_(values.narrow(0, slot.window.begin, slot.window.count));
    file_.wait(
        file_.write(slot.offset + slot.arrays[static_cast<size_t>(array)], {buffer(0), slot.array_bytes(array)}));
  }
}

void OffloadedStates::read_into(size_t block, int array, void* target) {
  std::vector<uint64_t> tickets;
  for (const Slot& slot : slots_) {
    if (slot.window.block != block) continue;
    auto* begin = static_cast<std::byte*>(target) + static_cast<size_t>(slot.window.begin) * element_bytes(array);
    tickets.push_back(file_.read(slot.offset + slot.arrays[static_cast<size_t>(array)],
                                 {begin, static_cast<size_t>(slot.array_bytes(array))}));
  }
  for (const uint64_t ticket : tickets) file_.wait(ticket);
}

}  // namespace strake::training
