#include "strake/monitor/throughput.h"

#include "strake/core/error.h"

namespace strake::monitor {

RateMeter::RateMeter(double window_seconds) : window_seconds_(window_seconds) {
  require(window_seconds > 0, ErrorKind::kInternal, "rate over a window of {} seconds", window_seconds);
}

void RateMeter::record(double seconds, int64_t total) {
  constexpr double kSamplesPerWindow = 128;  // bounds memory however often totals are recorded
  if (!samples_.empty() && total < samples_.back().total) samples_.clear();
  const Sample sample{seconds, total};
  if (samples_.size() >= 2 && seconds - samples_[samples_.size() - 2].seconds < window_seconds_ / kSamplesPerWindow) {
    samples_.back() = sample;
  } else {
    samples_.push_back(sample);
  }
  while (samples_.size() > 2 && samples_[1].seconds <= seconds - window_seconds_) samples_.pop_front();
}

double RateMeter::per_second() const {
  if (samples_.size() < 2) return 0;
  const double elapsed = samples_.back().seconds - samples_.front().seconds;
  return elapsed > 0 ? static_cast<double>(samples_.back().total - samples_.front().total) / elapsed : 0;
}

}  // namespace strake::monitor
