#include "strake/tensors/tracked_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>

#include "strake/core/memory.h"

namespace strake::tensors {
namespace {

struct ThreadBytes {
  int64_t current = 0;
  int64_t peak = 0;
};
thread_local ThreadBytes this_thread;

// Does what ATen's own CPU allocator does, and counts. The size of a block is malloc's, which is all that a deleter can
// know of it: a few dozen bytes more than was asked for.
class CountingAllocator final : public at::Allocator {
 public:
  static CountingAllocator& instance() {
    static CountingAllocator allocator;
    return allocator;
  }

  at::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    add(data);
    return {data, data, &release, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current(), std::memory_order_relaxed); }

  void count(int64_t bytes) {
    this_thread.current += bytes;
    this_thread.peak = std::max(this_thread.peak, this_thread.current);
    const int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t highest = peak();
    while (now > highest && !peak_.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
    }
  }

 private:
  static int64_t size_of(void* data) { return static_cast<int64_t>(::malloc_usable_size(data)); }
  static void release(void* data) {
    if (data == nullptr) return;
    instance().count(-size_of(data));
    c10::free_cpu(data);
  }

  void add(void* data) {
    if (data == nullptr) return;
    const int64_t size = size_of(data);
    ask_for_huge_pages(data, static_cast<size_t>(size));
    count(size);
  }

  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
};

}  // namespace

void track_tensor_memory() { c10::SetCPUAllocator(&CountingAllocator::instance()); }

void count_other_memory(int64_t bytes) {
  if (c10::GetCPUAllocator() == &CountingAllocator::instance()) CountingAllocator::instance().count(bytes);
}

int64_t tracked_bytes() { return CountingAllocator::instance().current(); }
int64_t peak_tracked_bytes() { return CountingAllocator::instance().peak(); }
int64_t peak_tracked_bytes_of_thread() { return this_thread.peak; }
void reset_peak_tracked_bytes_of_thread() { this_thread = {}; }
void reset_peak_tracked_bytes() { CountingAllocator::instance().reset_peak(); }

}  // namespace strake::tensors
