#include "strake/training/offloaded_states.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "strake/core/error.h"

namespace strake::training {
namespace {

constexpr uint64_t kPage = ScratchFile::kAlignment;

uint64_t whole_pages(int64_t elements) {
  return (static_cast<uint64_t>(elements) * sizeof(float) + kPage - 1) / kPage * kPage;
}

}  // namespace

std::vector<OffloadedStates::Slot> OffloadedStates::layout(std::span<const int64_t> counts, int num_arrays,
                                                           int64_t window_elements) {
  std::vector<Slot> slots;
  uint64_t offset = 0;
  for (size_t block = 0; block < counts.size(); ++block) {
    for (int64_t begin = 0; begin < counts[block]; begin += window_elements) {
      const int64_t count = std::min(window_elements, counts[block] - begin);
      slots.push_back({{block, begin, count}, offset, whole_pages(count)});
      offset += slots.back().array_bytes * static_cast<uint64_t>(num_arrays);
    }
  }
  return slots;
}

OffloadedStates::OffloadedStates(std::span<const int64_t> counts, int num_arrays, const Options& options)
    : num_arrays_(num_arrays),
      slots_(layout(counts, num_arrays, options.window_elements)),
      counts_(counts.begin(), counts.end()),
      file_(options.folder, slots_.empty() ? 0 : slots_.back().offset + slot_bytes(slots_.back()), options.file),
      buffer_bytes_(0) {
  require(options.window_elements > 0 && options.buffers >= 2, ErrorKind::kInternal,
          "offloaded states: windows of {} elements, {} buffers", options.window_elements, options.buffers);
  for (const Slot& slot : slots_) buffer_bytes_ = std::max(buffer_bytes_, slot_bytes(slot));
  const auto count = std::min(static_cast<size_t>(options.buffers), slots_.size());
  for (size_t i = 0; i < count; ++i) buffers_.push_back(allocate_aligned(buffer_bytes_));
}

// Buffer w % B holds window w. It is read when window w - B has been written, so up to B - 1 windows are on their way
// while one is updated.
void OffloadedStates::update_all(const Update& update) {
  const size_t depth = buffers_.size();
  std::vector<uint64_t> tickets(slots_.size());
  const auto bytes = [&](size_t w) { return std::span<std::byte>(buffers_[w % depth].get(), slot_bytes(slots_[w])); };
  const auto start_read = [&](size_t w) { tickets[w] = file_.read(slots_[w].offset, bytes(w)); };
  const size_t ahead = std::max<size_t>(1, depth / 2);
  for (size_t w = 0; w < std::min(ahead, slots_.size()); ++w) start_read(w);
  std::vector<float*> arrays(static_cast<size_t>(num_arrays_));
  size_t written = 0;  // windows below this are on disk
  for (size_t w = 0; w < slots_.size(); ++w) {
    file_.wait(tickets[w]);
    for (size_t k = 0; k < arrays.size(); ++k) {
      arrays[k] = reinterpret_cast<float*>(bytes(w).data() + k * slots_[w].array_bytes);
    }
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

void OffloadedStates::for_each_slot(size_t block, int array,
                                    const std::function<void(const Slot&, uint64_t offset)>& visit) const {
  for (const Slot& slot : slots_) {
    if (slot.window.block == block) visit(slot, slot.offset + static_cast<uint64_t>(array) * slot.array_bytes);
  }
}

at::Tensor OffloadedStates::read(size_t block, int array) {
  at::Tensor values = at::empty({counts_[block]}, at::kFloat);
  for_each_slot(block, array, [&](const Slot& slot, uint64_t offset) {
    file_.wait(file_.read(offset, {buffers_[0].get(), slot.array_bytes}));
    std::memcpy(values.mutable_data_ptr<float>() + slot.window.begin, buffers_[0].get(),
                static_cast<size_t>(slot.window.count) * sizeof(float));
  });
  return values;
}

void OffloadedStates::write(size_t block, int array, const at::Tensor& values) {
  require(values.numel() == counts_[block], ErrorKind::kInternal, "offloaded states: {} values for {} elements",
          values.numel(), counts_[block]);
  for_each_slot(block, array, [&](const Slot& slot, uint64_t offset) {
    std::memcpy(buffers_[0].get(), values.const_data_ptr<float>() + slot.window.begin,
                static_cast<size_t>(slot.window.count) * sizeof(float));
    file_.wait(file_.write(offset, {buffers_[0].get(), slot.array_bytes}));
  });
}

}  // namespace strake::training
