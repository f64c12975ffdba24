#include "strake/tasks/comms_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "strake/core/log.h"
#include "strake/monitor/number_text.h"

namespace strake::tasks {
namespace {

constexpr double kMilliseconds = 1e3;

// Gbit/s: of the message, and of the busiest link of a ring that moves it, as DeepSpeed and nccl-tests count them.
struct Bandwidth {
  double message;
  double bus;
};

Bandwidth bandwidth(const comm::CommOperation& operation) {
  const std::string_view name = operation.name;
  if (operation.seconds <= 0) return {0, 0};
  const double gigabits = 8e-9 * static_cast<double>(operation.bytes) / operation.seconds;
  const double others = static_cast<double>(operation.num_ranks - 1) / operation.num_ranks;
  if (name == "all_reduce") return {2 * gigabits, 2 * gigabits * others};
  if (name == "reduce_scatter" || name == "all_gather") return {gigabits, gigabits * others};
  return {gigabits, gigabits};
}

std::string size_text(int64_t bytes) {
  constexpr int64_t kLeastWithPrefix = 1000;
  return monitor::scaled_text(static_cast<double>(bytes)) + (bytes < kLeastWithPrefix ? " B" : "B");
}

}  // namespace

// DeepSpeed's names may be longer: all_gather_into_tensor.
bool CommsLog::is_wanted(const std::string& name) const {
  return options_.all || std::ranges::any_of(options_.operations, [&](const auto& o) { return o.starts_with(name); });
}

void CommsLog::add(const comm::CommOperation& operation) {
  if (!is_wanted(operation.name)) return;
  {
    const std::lock_guard lock(mutex_);
    Total& total = totals_[{operation.name, operation.bytes, operation.num_ranks}];
    ++total.count;
    total.seconds += operation.seconds;
  }
  if (!options_.verbose) return;
  const Bandwidth speed = bandwidth(operation);
  log::info("comm op: {} | time (ms): {:.3f} | msg size: {} | algbw (Gbps): {:.2f} | busbw (Gbps): {:.2f}",
            operation.name, kMilliseconds * operation.seconds, size_text(operation.bytes), speed.message, speed.bus);
}

void CommsLog::print(std::ostream& out) const {
  const std::lock_guard lock(mutex_);
  out << fmt::format("***** comms log of rank 0 *****\n  {:<14} {:>5} {:>12} {:>7} {:>17} {:>15} {:>15} {:>16}\n",
                     "Comm. Op", "Ranks", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)",
                     "tput_avg (Gbps)", "busbw_avg (Gbps)");
  for (const auto& [kind, total] : totals_) {
    const double mean = total.seconds / static_cast<double>(total.count);
    const Bandwidth speed =
        bandwidth({.name = kind.name.c_str(), .bytes = kind.bytes, .num_ranks = kind.num_ranks, .seconds = mean});
    out << fmt::format("  {:<14} {:>5} {:>12} {:>7} {:>17.2f} {:>15.3f} {:>15.2f} {:>16.2f}\n", kind.name,
                       kind.num_ranks, size_text(kind.bytes), total.count, kMilliseconds * total.seconds,
                       kMilliseconds * mean, speed.message, speed.bus);
  }
  out << std::flush;
}

}  // namespace strake::tasks
