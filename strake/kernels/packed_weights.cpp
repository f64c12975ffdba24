#include "strake/kernels/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/threads.h"

namespace strake::kernels {

struct PackedWeights::Entry {
  Name name;
  Order order;
  AlignedFloats memory;
  std::atomic<int64_t> next = 0;    // panel that nobody has begun to pack
  std::atomic<int64_t> packed = 0;  // panels
};

std::shared_ptr<PackedWeights::Entry> PackedWeights::find_or_add(const Name& name, Order order, int64_t floats) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(entries_, [&](const auto& entry) { return entry->name == name && entry->order == order; });
  if (found != entries_.end()) {
    std::rotate(found, found + 1, entries_.end());
    return entries_.back();
  }
  const int64_t room = bytes_ - floats * static_cast<int64_t>(sizeof(float));
  int64_t kept = std::transform_reduce(entries_.begin(), entries_.end(), int64_t{0}, std::plus(),
                                       [](const auto& entry) { return entry->memory.bytes(); });
  std::erase_if(entries_, [&](const auto& entry) {
    if (kept <= room) return false;
    kept -= entry->memory.bytes();  // who multiplies with it keeps the memory until then
    return true;
  });
  return entries_.emplace_back(new Entry{.name = name, .order = order, .memory = AlignedFloats(floats)});
}

template <typename T>
PackedMatrix<T> PackedWeights::get(const Name& name, const MatrixOperand<T>& b, int64_t depth, int64_t columns) {
  const Packing<T> packing(b, depth, columns);
  const std::shared_ptr<Entry> entry = find_or_add(name, b.order, packing.floats());
  require(entry->memory.count() == packing.floats(), ErrorKind::kInternal,
          "a matrix of [{}, {}] is packed under the name of one with {} floats", depth, columns, entry->memory.count());
  constexpr int64_t kAtOnce = 4;  // so wide that lines of a matrix whose rows are contiguous are read in runs
  const int64_t panels = packing.panels();
  parallel_for(std::min<int64_t>(num_threads(), panels), 1, [&](int64_t, int64_t) {
    for (int64_t begin = 0; (begin = entry->next.fetch_add(kAtOnce, std::memory_order_relaxed)) < panels;) {
      const int64_t end = std::min(panels, begin + kAtOnce);
      packing.pack(begin, end, entry->memory.data());
      if (entry->packed.fetch_add(end - begin, std::memory_order_acq_rel) + end - begin == panels) {
        entry->packed.notify_all();
      }
    }
  });
  for (int64_t packed = 0; (packed = entry->packed.load(std::memory_order_acquire)) < panels;) {
    entry->packed.wait(packed, std::memory_order_acquire);
  }
  return PackedMatrix<T>({std::shared_ptr<const float>(entry, entry->memory.data()), entry->memory.count()}, depth,
                         columns);
}

template PackedMatrix<float> PackedWeights::get(const Name&, const MatrixOperand<float>&, int64_t, int64_t);
template PackedMatrix<BFloat16> PackedWeights::get(const Name&, const MatrixOperand<BFloat16>&, int64_t, int64_t);

}  // namespace strake::kernels
