// Collectives of MPI itself, a peer of strake's: mpiexec -n RANKS mpi_collectives MEGABYTES COLLECTIVE
// Prints one JSON object as collectives_bench does. Buffers lie in huge pages; sums are in place, and so is
// what a rank gives to be gathered.
#include <fmt/core.h>
#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int kCalls = 7;
constexpr size_t kHugePage = size_t{2} << 20;

std::span<float> ones(int count) {
  const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
  auto* const begin = static_cast<float*>(std::aligned_alloc(kHugePage, bytes));
  if (begin == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
  ::madvise(begin, bytes, MADV_HUGEPAGE);
  std::fill_n(begin, count, 1.0F);
  return {begin, static_cast<size_t>(count)};
}

double median_seconds(const std::function<void()>& collective) {
  collective();
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    collective();
    MPI_Barrier(MPI_COMM_WORLD);
    seconds.push_back(MPI_Wtime() - start);
  }
  std::ranges::nth_element(seconds, seconds.begin() + kCalls / 2);
  return seconds[kCalls / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int numel = argc > 2 ? std::atoi(argv[1]) * 250'000 : 0;
  const std::string wanted = argc > 2 ? argv[2] : "";
  const std::span<float> full = ones(std::max(numel, ranks));
  const int share = static_cast<int>(full.size()) / ranks;
  const std::span<float> shard = ones(share);
  const std::map<std::string, std::function<void()>> collectives{
      {"all_reduce",
       [&] {
         MPI_Allreduce(MPI_IN_PLACE, full.data(), static_cast<int>(full.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       }},
      {"reduce_scatter",
       [&] { MPI_Reduce_scatter_block(full.data(), shard.data(), share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
      {"all_gather",
       [&] { MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, full.data(), share, MPI_FLOAT, MPI_COMM_WORLD); }}};
  const auto found = collectives.find(wanted);
  const bool is_usable = numel > 0 && found != collectives.end();
  if (is_usable) {
    const double seconds = median_seconds(found->second);
    if (rank == 0) {
      fmt::print("{{\"collective\": \"{}\", \"ranks\": {}, \"seconds\": {:.6f}, \"tokens\": 0, \"rate\": {:.2f}}}\n",
                 wanted, ranks, seconds, static_cast<double>(numel) * 4e-9 / seconds);
    }
  } else if (rank == 0) {
    fmt::print(stderr, "usage: mpi_collectives MEGABYTES all_reduce|reduce_scatter|all_gather\n");
  }
  std::free(full.data());
  std::free(shard.data());
  MPI_Finalize();
  return is_usable ? 0 : 2;
}
