#include "strake/models/memory_meter.h"

#include <numeric>

namespace strake::models {

int64_t total(const MemoryByUse& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

void MemoryMeter::take(MemoryUse use, int64_t bytes) {
  now_[static_cast<size_t>(use)] += bytes;
  if (total(now_) > total(peak_)) peak_ = now_;
}

std::shared_ptr<const void> MemoryMeter::lend(MemoryUse use, int64_t bytes) {
  take(use, bytes);
  return {this, [this, use, bytes](const void*) { give_back(use, bytes); }};
}

}  // namespace strake::models
