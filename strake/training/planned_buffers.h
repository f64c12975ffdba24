#pragma once

#include <cstdint>
#include <map>

#include "strake/models/memory_meter.h"

namespace strake::training {

// What a plan of memory counts of buffers that are kept for the next user of the same size.
class PlannedBuffers {
 public:
  PlannedBuffers(models::MemoryMeter& meter, models::MemoryUse use) : meter_(meter), use_(use) {}
  void take(int64_t bytes) {
    int& free = free_[bytes];
    if (free > 0) {
      --free;
    } else {
      meter_.take(use_, bytes);
    }
  }
  void put_back(int64_t bytes) { ++free_[bytes]; }
  // Frees what was put back.
  void clear() {
    for (const auto& [bytes, count] : free_) meter_.give_back(use_, bytes * count);
    free_.clear();
  }

 private:
  models::MemoryMeter& meter_;
  models::MemoryUse use_;
  std::map<int64_t, int> free_;
};

}  // namespace strake::training
