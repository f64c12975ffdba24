#include "strake/training/offloaded_states.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>

#include "strake/core/error.h"
#include "strake/core/threads.h"

namespace strake::training {
namespace {

constexpr uint64_t kPage = ScratchFile::kAlignment;

}  // namespace

std::vector<OffloadedStates::Slot> OffloadedStates::layout(std::span<const int64_t> counts,
                                                           const std::vector<at::ScalarType>& arrays,
                                                           int64_t window_elements) {
  std::vector<Slot> slots;
  uint64_t offset = 0;
  for (size_t unit = 0; unit < counts.size(); ++unit) {
    for (int64_t begin = 0; begin < counts[unit]; begin += window_elements) {
      const int64_t count = std::min(window_elements, counts[unit] - begin);
      Slot& slot = slots.emplace_back(Slot{.window = {unit, begin, count}, .offset = offset, .arrays = {0}});
      for (const at::ScalarType dtype : arrays) {
        slot.arrays.push_back(slot.bytes() +
                              ScratchFile::whole_pages(static_cast<uint64_t>(count) * c10::elementSize(dtype)));
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

// Each thread reads, updates and writes windows of its own: threads that share every window wait for each other between
// two of them, awake, on cores that the transfers need.
void OffloadedStates::update_all(const Update& update) {
  const int updaters = std::clamp(static_cast<int>(num_buffers_ / 2), 1, num_threads());
  run_side_by_side(updaters, [&](int i) { update_every(updaters, i, update); });
}

// Windows first, first + stride and so on, by way of buffers first, first + stride and so on, in turn. A buffer's next
// window is read when its last one has been written.
void OffloadedStates::update_every(int stride, int first, const Update& update) {
  const auto of_this = [&](size_t i) { return static_cast<size_t>(first) + i * static_cast<size_t>(stride); };
  const auto count_below = [&](size_t end) {
    return (end + static_cast<size_t>(stride - 1 - first)) / static_cast<size_t>(stride);
  };
  const size_t count = count_below(slots_.size());
  const size_t depth = count_below(num_buffers_);
  std::vector<uint64_t> tickets(count);
  const auto slot = [&](size_t w) -> const Slot& { return slots_[of_this(w)]; };
  const auto bytes = [&](size_t w) { return std::span<std::byte>(buffer(of_this(w % depth)), slot(w).bytes()); };
  const auto start_read = [&](size_t w) { tickets[w] = file_.read(slot(w).offset, bytes(w)); };
  const size_t ahead = std::max<size_t>(1, depth / 2);
  for (size_t w = 0; w < std::min(ahead, count); ++w) start_read(w);
  std::vector<void*> arrays(dtypes_.size());
  size_t written = 0;  // windows below this are on disk
  for (size_t w = 0; w < count; ++w) {
    file_.wait(tickets[w]);
    for (size_t k = 0; k < arrays.size(); ++k) arrays[k] = bytes(w).data() + slot(w).arrays[k];
    const size_t next = w + ahead;
    if (next < count) {
      for (; written + depth <= next; ++written) file_.wait(tickets[written]);
      start_read(next);
    }
    update(slot(w).window, arrays);
    tickets[w] = file_.write(slot(w).offset, bytes(w));
  }
  for (; written < count; ++written) file_.wait(tickets[written]);
}

at::Tensor OffloadedStates::in_buffer(const Slot& slot, int array) const {
  return at::from_blob(buffer(0), {slot.window.count}, dtypes_[static_cast<size_t>(array)]);
}

at::Tensor OffloadedStates::read(size_t unit, int array) {
  at::Tensor values = at::empty({counts_[unit]}, dtypes_[static_cast<size_t>(array)]);
  read(unit, array, values);
  return values;
}

void OffloadedStates::read(size_t unit, int array, const at::Tensor& target) {
  require(target.numel() == counts_[unit], ErrorKind::kInternal, "offloaded states: {} values for {} elements",
          target.numel(), counts_[unit]);
  for (const Slot& slot : slots_) {
    if (slot.window.unit != unit) continue;
    file_.wait(file_.read(slot.offset + slot.arrays[static_cast<size_t>(array)], {buffer(0), slot.array_bytes(array)}));
    target.narrow(0, slot.window.begin, slot.window.count).copy_(in_buffer(slot, array));
  }
}

void OffloadedStates::write(size_t unit, int array, const at::Tensor& values) {
  require(values.numel() == counts_[unit], ErrorKind::kInternal, "offloaded states: {} values for {} elements",
          values.numel(), counts_[unit]);
  for (const Slot& slot : slots_) {
    if (slot.window.unit != unit) continue;
    in_buffer(slot, array).copy_(values.narrow(0, slot.window.begin, slot.window.count));
    file_.wait(
        file_.write(slot.offset + slot.arrays[static_cast<size_t>(array)], {buffer(0), slot.array_bytes(array)}));
  }
}

void OffloadedStates::read_into(size_t unit, int array, void* target) {
  std::vector<uint64_t> tickets;
  for (const Slot& slot : slots_) {
    if (slot.window.unit != unit) continue;
    auto* begin = static_cast<std::byte*>(target) + static_cast<size_t>(slot.window.begin) * element_bytes(array);
    tickets.push_back(file_.read(slot.offset + slot.arrays[static_cast<size_t>(array)],
                                 {begin, static_cast<size_t>(slot.array_bytes(array))}));
  }
  file_.wait_all(tickets);
}

}  // namespace strake::training
