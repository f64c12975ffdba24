#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "strake/core/memory.h"

namespace strake::kernels {

// One 64-byte aligned piece of uninitialised floats for each of a fixed number of threads, allocated at once because
// an allocation that fails inside a parallel region ends the program.
class Scratch {
 public:
  Scratch(int pieces, int64_t floats)
      : floats_((floats + kAlign - 1) / kAlign * kAlign),
        memory_(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(pieces * floats_ + kAlign))) {}

  // A piece that nobody else has; call at most `pieces` times.
  float* take() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    const uintptr_t to_boundary = (64 - address % 64) % 64 / sizeof(float);
    return memory_.get() + to_boundary + next_.fetch_add(1, std::memory_order_relaxed) * floats_;
  }

 private:
  static constexpr int64_t kAlign = 16;
  int64_t floats_;
  std::unique_ptr<float[]> memory_;
  std::atomic<int64_t> next_{0};
};

// `floats`, and as many more as fill a cache line.
inline int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

// Uninitialised floats on a 64-byte boundary, in huge pages where there are enough of them: in small ones, which lie in
// the caches by chance, a product that fills the second-level cache is a twentieth slower.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(int64_t count)
      : count_(count),
        memory_(static_cast<float*>(::operator new[](static_cast<size_t>(count) * sizeof(float), kLine))) {
    ask_for_huge_pages(memory_.get(), static_cast<size_t>(count) * sizeof(float));
  }
  float* data() { return memory_.get(); }
  const float* data() const { return memory_.get(); }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(float)); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, kLine); }
  };
  int64_t count_ = 0;
  std::unique_ptr<float[], Free> memory_;
};

// Floats that nobody writes any more, shared by all copies: memory of their own, or a part of somebody else's (a mapped
// file, say), whom they keep alive.
class SharedFloats {
 public:
  SharedFloats(std::shared_ptr<const float> data, int64_t count) : data_(std::move(data)), count_(count) {}
  explicit SharedFloats(AlignedFloats floats) : count_(floats.count()) {
    const auto owner = std::make_shared<const AlignedFloats>(std::move(floats));
    data_ = {owner, owner->data()};
  }
  const float* data() const { return data_.get(); }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(float)); }

 private:
  std::shared_ptr<const float> data_;
  int64_t count_;
};

}  // namespace strake::kernels
