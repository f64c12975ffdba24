#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

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

}  // namespace strake::kernels
