#include "strake/training/offloaded_states.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "strake/core/error.h"

namespace strake::training {
namespace {

constexpr uint64_t kPage = ScratchFile::kAlignment;

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::vector<OffloadedStates::Slot> OffloadedStates::layout(std::span<const int64_t> counts,
                                                           int64_t window_elements) const {
  std::vector<Slot> slots;
  uint64_t offset = 0;
  for (size_t block = 0; block < counts.size(); ++block) {
    for (int64_t begin = 0; begin < counts[block]; begin += window_elements) {
      const int64_t count = std::min(window_elements, counts[block] - begin);
      Slot& slot = slots.emplace_back(Slot{.window = {block, begin, count}, .offset = offset, .arrays = {0}});
      for (const at::ScalarType dtype : dtypes_) {
        slot.arrays.push_back(slot.bytes() + whole_pages(static_cast<uint64_t>(count) * c10::elementSize(dtype)));
      }
      offset += slot.bytes();
    }
  }
  return slots;
}

OffloadedStates::OffloadedStates(std::span<const int64_t> counts, std::vector<at::ScalarType> arrays,
                                 const Options& options)
    : dtypes_(std::move(arrays)),
      slots_(layout(counts, options.window_elements)),
      counts_(counts.begin(), counts.end()),
      file_(options.folder, slots_.empty() ? 0 : slots_.back().offset + slots_.back().bytes(), options.file),
      buffer_bytes_(0) {
  constexpr int64_t kPageElements = 2048;  // of two bytes
  require(options.window_elements > 0 && options.window_elements % kPageElements == 0 && options.buffers >= 2,
          ErrorKind::kInternal, "offloaded states: windows of {} elements, {} buffers", options.window_elements,
          options.buffers);
  for (const Slot& slot : slots_) buffer_bytes_ = std::max(buffer_bytes_, slot.bytes());
  const auto count = std::min(static_cast<size_t>(options.buffers), slots_.size());
  for (size_t i = 0; i < count; ++i) buffers_.push_back(allocate_aligned(buffer_bytes_));
}

// Buffer w % B holds window w. It is read when window w - B has been written, so up to B - 1 windows are on their way
// while one is updated.
void OffloadedStates::update_all(const Update& update) {
  const size_t depth = buffers_.size();
  std::vector<uint64_t> tickets(slots_.size());
  const auto bytes = [&](size_t w) { return std::span<std::byte>(buffers_[w % depth].get(), slots_[w].bytes()); };
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

at::Tensor OffloadedStates::read(size_t block, int array) {
  at::Tensor values = at::empty({counts_[block]}, dtypes_[static_cast<size_t>(array)]);
  auto* target = static_cast<std::byte*>(values.mutable_data_ptr());
  for (const Slot& slot : slots_) {
    if (slot.window.block != block) continue;
    const std::span<std::byte> bytes(buffers_[0].get(), slot.array_bytes(array));
    file_.wait(file_.read(slot.offset + slot.arrays[static_cast<size_t>(array)], bytes));
    std::memcpy(target + static_cast<size_t>(slot.window.begin) * element_bytes(array), bytes.data(),
                static_cast<size_t>(slot.window.count) * element_bytes(array));
  }
  return values;
}

void OffloadedStates::write(size_t block, int array, const at::Tensor& values) {
  require(values.numel() == counts_[block] && values.scalar_type() == dtypes_[static_cast<size_t>(array)],
          ErrorKind::kInternal, "offloaded states: {} values for {} elements", values.numel(), counts_[block]);
  const auto* source = static_cast<const std::byte*>(values.const_data_ptr());
  for (const Slot& slot : slots_) {
    if (slot.window.block != block) continue;
    const std::span<std::byte> bytes(buffers_[0].get(), slot.array_bytes(array));
    std::memcpy(bytes.data(), source + static_cast<size_t>(slot.window.begin) * element_bytes(array),
                static_cast<size_t>(slot.window.count) * element_bytes(array));
    file_.wait(file_.write(slot.offset + slot.arrays[static_cast<size_t>(array)], bytes));
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
