#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "strake/core/scratch_file.h"

namespace strake::training {

// fp32 state of many blocks on disk, as ZeRO-Infinity keeps it (Rajbhandari et al., SC 2021): several arrays that
// belong together element by element, such as master weights and moments. An update brings them in window by window,
// reading ahead and writing behind, so that memory holds a few windows whatever the model. Starts as zeros.
class OffloadedStates {
 public:
  struct Options {
    std::filesystem::path folder;
    int64_t window_elements = int64_t{1} << 20;
    int buffers = 4;  // windows in memory: being read, updated and written
    ScratchFile::Options file = {};
  };

  // counts[i] elements for block i, in `num_arrays` arrays. Reserves the disk space now; Error (kIo) without room.
  OffloadedStates(std::span<const int64_t> counts, int num_arrays, const Options& options);

  // Calls update(i, begin, arrays) for the windows of all blocks in order: arrays[k][j] is element begin + j of block
  // i's array k, `count` of them, and is written back.
  struct Window {
    size_t block = 0;
    int64_t begin = 0;  // elements of the block
    int64_t count = 0;
  };
  using Update = std::function<void(const Window& window, std::span<float* const> arrays)>;
  void update_all(const Update& update);

  // One array of a block, whole: for checkpoints.
  at::Tensor read(size_t block, int array);
  void write(size_t block, int array, const at::Tensor& values);

  uint64_t disk_bytes() const { return file_.bytes(); }
  uint64_t buffer_bytes() const { return static_cast<uint64_t>(buffers_.size()) * buffer_bytes_; }

 private:
  struct Slot {  // a window on disk
    Window window;
    uint64_t offset = 0;
    uint64_t array_bytes = 0;  // of each array, rounded up to whole pages
  };

  static std::vector<Slot> layout(std::span<const int64_t> counts, int num_arrays, int64_t window_elements);
  uint64_t slot_bytes(const Slot& slot) const { return slot.array_bytes * static_cast<uint64_t>(num_arrays_); }
  // Runs transfer(bytes of one array of the window in memory, values' part) for each window of a block.
  void for_each_slot(size_t block, int array, const std::function<void(const Slot&, uint64_t offset)>& visit) const;

  int num_arrays_;
  std::vector<Slot> slots_;
  std::vector<int64_t> counts_;
  ScratchFile file_;
  uint64_t buffer_bytes_;
  std::vector<AlignedBytes> buffers_;
};

}  // namespace strake::training
