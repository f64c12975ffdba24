#pragma once

#include <cstdint>
#include <deque>

namespace strake::monitor {

// Events per second (tokens, rows, steps) over a sliding window, from running totals. Not thread-safe.
class RateMeter {
 public:
  explicit RateMeter(double window_seconds = 30);

  // The running total at `seconds` on any clock that does not go back. A total below the last one starts afresh.
  void record(double seconds, int64_t total);

  // Rate over the recorded part of the window; 0 before two totals at different times are known.
  double per_second() const;

 private:
  struct Sample {
    double seconds;
    int64_t total;
  };

  double window_seconds_;
  std::deque<Sample> samples_;  // oldest first; the front is at or before the start of the window
};

}  // namespace strake::monitor
