#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "strake/core/scratch_file.h"

namespace strake::training {

// State of many units on disk, as ZeRO-Infinity keeps it (Rajbhandari et al., SC 2021): several arrays that belong
// together element by element, such as master weights and moments. An update brings them in window by window, reading
// ahead and writing behind, so that memory holds a few windows whatever the model. Starts as zeros.
class OffloadedStates {
 public:
  struct Options {
    std::filesystem::path folder;
    int64_t window_elements = int64_t{1} << 20;  // a multiple of 2048: windows begin on whole pages
    int buffers = 4;                             // windows in memory: being read, updated and written
    ScratchFile::Options file = {};
  };

  // counts[i] elements for unit i, in arrays of these dtypes (4 or 2 bytes an element). Reserves the disk space now;
  // Error (kIo) without room.
  OffloadedStates(std::span<const int64_t> counts, std::vector<at::ScalarType> arrays, const Options& options);

  // Calls update(window, arrays) for the windows of all units, several at once from as many threads, which share the
  // calling thread's number of compute threads: arrays[k][j] is element begin + j of the unit's array k, `count` of
  // them, and is written back.
  struct Window {
    size_t unit = 0;
    int64_t begin = 0;  // elements of the unit
    int64_t count = 0;
  };
  using Update = std::function<void(const Window& window, std::span<void* const> arrays)>;
  void update_all(const Update& update);

  // One array of a unit, whole.
  at::Tensor read(size_t unit, int array);
  // The same into `target` and from `values`, of any dtype: a window at a time, with no other memory.
  void read(size_t unit, int array, const at::Tensor& target);
  void write(size_t unit, int array, const at::Tensor& values);
  // The same into memory at a page boundary, with room for whole pages; may run beside another thread's use of other
  // units.
  void read_into(size_t unit, int array, void* target);

  // Of such state, without making it.
  static uint64_t disk_bytes(std::span<const int64_t> counts, const std::vector<at::ScalarType>& arrays,
                             int64_t window_elements);

 private:
  struct Slot {  // a window on disk
    Window window;
    uint64_t offset = 0;
    std::vector<uint64_t> arrays;  // first byte of each array in the slot, on a page; then the slot's size
    uint64_t bytes() const { return arrays.back(); }
    uint64_t array_bytes(int array) const {
      return arrays[static_cast<size_t>(array) + 1] - arrays[static_cast<size_t>(array)];
    }
  };

  static std::vector<Slot> layout(std::span<const int64_t> counts, const std::vector<at::ScalarType>& arrays,
                                  int64_t window_elements);
  static uint64_t end_of(const std::vector<Slot>& slots);  // in the file
  void update_every(int stride, int first, const Update& update);
  size_t element_bytes(int array) const { return c10::elementSize(dtypes_[static_cast<size_t>(array)]); }
  std::byte* buffer(size_t i) const { return first_buffer_ + i * buffer_bytes_; }
  // The elements of a slot's array that are in the first buffer.
  at::Tensor in_buffer(const Slot& slot, int array) const;

  std::vector<at::ScalarType> dtypes_;
  std::vector<Slot> slots_;
  std::vector<int64_t> counts_;
  uint64_t buffer_bytes_ = 0;
  size_t num_buffers_ = 0;
  at::Tensor memory_;  // of all buffers: from libtorch's allocator, so that it is counted with all tensor memory
  std::byte* first_buffer_ = nullptr;
  ScratchFile file_;  // ends before the memory does: after an error there may be transfers on their way
};

}  // namespace strake::training
