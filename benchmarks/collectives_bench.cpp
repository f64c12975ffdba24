// Collectives of thread ranks: collectives_bench [RANKS] [MEGABYTES] [COLLECTIVE]
// Prints one JSON object a line: {"collective", "ranks", "seconds", "tokens", "rate"}; seconds are the median of
// several calls on the slowest rank, rate the whole fp32 buffer's gigabytes a second, tokens none.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "strake/comm/thread_comm.h"
#include "strake/core/clock.h"

namespace strake {
namespace {

constexpr int kCalls = 7;

double median_seconds(comm::Comm& comm, const std::function<void()>& collective) {
  collective();
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    comm.barrier();
    const auto start = Clock::now();
    collective();
    comm.barrier();
    seconds.push_back(seconds_since(start));
  }
  std::ranges::nth_element(seconds, seconds.begin() + kCalls / 2);
  return seconds[kCalls / 2];
}

void measure(comm::Comm& comm, int64_t numel, std::string_view wanted) {
  const tensors::ShardLayout layout(numel, comm.size());
  at::Tensor full = at::ones({numel});
  at::Tensor shard = at::zeros({layout.size(comm.rank())});
  const std::vector<std::pair<const char*, std::function<void()>>> collectives{
      {"all_reduce", [&] { comm.all_reduce(full); }},
      {"reduce_scatter", [&] { comm.reduce_scatter(full, comm.size(), layout, shard, comm::Fold::kOverwrite); }},
      {"all_gather", [&] { comm.all_gather(full, layout); }}};
  for (const auto& [name, run] : collectives) {
    if (!wanted.empty() && wanted != name) continue;
    const double seconds = median_seconds(comm, run);
    if (comm.rank() != 0) continue;
    fmt::print("{{\"collective\": \"{}\", \"ranks\": {}, \"seconds\": {:.6f}, \"tokens\": 0, \"rate\": {:.2f}}}\n",
               name, comm.size(), seconds, static_cast<double>(numel) * 4e-9 / seconds);
  }
}

}  // namespace
}  // namespace strake

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t numel = (argc > 2 ? std::atoll(argv[2]) : 500) * 250'000;
  const std::string_view wanted = argc > 3 ? argv[3] : "";
  if (ranks < 1 || numel < 1) {
    fmt::print(stderr, "usage: collectives_bench [RANKS] [MEGABYTES] [COLLECTIVE]\n");
    return 2;
  }
  strake::comm::run_ranks(ranks, 1, [&](strake::comm::Comm& comm) { strake::measure(comm, numel, wanted); });
}
