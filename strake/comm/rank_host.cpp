#include "strake/comm/rank_host.h"

#include <algorithm>
#include <functional>
#include <string>

#include "strake/core/host_name.h"

namespace strake::comm {
namespace {

constexpr int kBitsOfDouble = 52;  // which it holds exactly

// Containers of a cluster have names of their own.
double id_of_host() { return static_cast<double>(std::hash<std::string>()(host_name()) >> (64 - kBitsOfDouble)); }

// Of every rank, in order. `own` is sorted. Collective.
std::vector<std::vector<int>> gather_cores(Comm& comm, const std::vector<int>& own) {
  const std::vector<double> last = all_gather_values(comm, {own.empty() ? 0.0 : own.back()});
  const size_t num_words = static_cast<size_t>(*std::ranges::max_element(last)) / kBitsOfDouble + 1;
  std::vector<double> words(num_words);
  for (const int core : own) {
    words[static_cast<size_t>(core) / kBitsOfDouble] += static_cast<double>(int64_t{1} << core % kBitsOfDouble);
  }
  const std::vector<double> of_all = all_gather_values(comm, words);
  std::vector<std::vector<int>> cores(static_cast<size_t>(comm.size()));
  for (size_t word = 0; word < of_all.size(); ++word) {
    const auto bits = static_cast<int64_t>(of_all[word]);
    for (int bit = 0; bit < kBitsOfDouble; ++bit) {
      const int core = static_cast<int>(word % num_words) * kBitsOfDouble + bit;
      if ((bits >> bit & 1) != 0) cores[word / num_words].push_back(core);
    }
  }
  return cores;
}

}  // namespace

void find_host(Comm& comm, RankEnvironment& environment, const ProcessCores& cores) {
  const double own = id_of_host();
  const std::vector<double> hosts = all_gather_values(comm, {own});
  const std::vector<std::vector<int>> of_ranks = gather_cores(comm, cores.numbers);
  const auto on_host = static_cast<int>(std::ranges::count(hosts, own));
  const auto before = static_cast<size_t>(std::count(hosts.begin(), hosts.begin() + comm.rank(), own));
  if (!environment.knows_host) {
    environment.local_size = on_host;
    environment.local_rank = static_cast<int>(before);
    environment.knows_host = true;
  }
  environment.num_cores = std::max(1, cores.available / environment.local_size);
  const bool is_by_time = cores.available < static_cast<int>(cores.numbers.size());
  if (is_by_time || on_host != environment.local_size) return;  // hosts of one name, or containers of one host
  std::vector<std::vector<int>> here;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == own) here.push_back(of_ranks[rank]);
  }
  environment.num_cores = share_of_cores(here, before);
}

}  // namespace strake::comm
