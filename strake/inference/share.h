#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>

#include "strake/kernels/thread_part.h"

namespace strake::inference {

// Where threads that compute together wait for each other. They spin, because a step takes some ten microseconds; a
// thread whose partner got no core sleeps after a while.
class Meeting {
 public:
  static constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();

  // Returns when `size` threads are here, to each of them the least of the numbers that they brought. What a thread
  // wrote before is seen by all after. For the same threads again and again.
  int64_t wait(int size, int64_t number) {
    const uint32_t round = round_.load(std::memory_order_relaxed);  // it does not change before this thread is here
    std::atomic<int64_t>& least = least_[round % 2];
    for (int64_t now = least.load(std::memory_order_relaxed);
         number < now && !least.compare_exchange_weak(now, number, std::memory_order_relaxed);) {
    }
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived_.store(0, std::memory_order_relaxed);
      least_[(round + 1) % 2].store(kNothing, std::memory_order_relaxed);  // all have read it: they are here
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
    } else {
      sleep_until_over(round);
    }
    return least.load(std::memory_order_relaxed);
  }

 private:
  void sleep_until_over(uint32_t round) const {
    constexpr int kSpins = 4000;  // about 50 microseconds
    for (int i = 0; i < kSpins; ++i) {
      if (round_.load(std::memory_order_acquire) != round) return;
      __builtin_ia32_pause();
    }
    round_.wait(round, std::memory_order_acquire);
  }

  alignas(64) std::atomic<int> arrived_{0};
  std::array<std::atomic<int64_t>, 2> least_{kNothing, kNothing};  // of this round and of the next or last one
  alignas(64) std::atomic<uint32_t> round_{0};                     // on a cache line of its own: others spin on it
};

// A thread's part of work that goes in steps: in a step it takes its range of the rows, columns or heads, and at the
// end of a step all threads wait for each other. A thread that works alone takes all and waits for nobody.
class Share {
 public:
  Share() = default;
  Share(int id, int size, Meeting& meeting) : part_{.index = id, .count = size}, meeting_(&meeting) {}

  bool is_whole() const { return part_.count == 1; }
  bool leads() const { return part_.index == 0; }
  const kernels::ThreadPart& part() const { return part_; }

  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  Range range(int64_t count) const {
    return {count * part_.index / part_.count, count * (part_.index + 1) / part_.count};
  }

  void wait() const { least(Meeting::kNothing); }
  // Waits, and gives all threads the least of their numbers.
  int64_t least(int64_t number) const { return is_whole() ? number : meeting_->wait(part_.count, number); }

 private:
  kernels::ThreadPart part_;
  Meeting* meeting_ = nullptr;
};

}  // namespace strake::inference
