#include "strake/comm/rank_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "strake/core/error.h"

namespace strake::comm {
namespace {

using Lookup = std::function<const char*(const char*)>;

std::optional<int> number(const Lookup& lookup, const char* name) {
  const char* text = lookup(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int value = 0;
  const std::string_view view(text);
  const auto parsed = std::from_chars(view.data(), view.data() + view.size(), value);
  require(parsed.ec == std::errc{} && parsed.ptr == view.data() + view.size() && value >= 0, ErrorKind::kUsage,
          "environment variable {}={} is not a non-negative number", name, view);
  return value;
}

struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_size;
  const char* local_rank;
};

constexpr Names kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"},
};

}  // namespace

std::optional<RankEnvironment> detect_rank_environment(const Lookup& lookup) {
  for (const Names& names : kLaunchers) {
    const auto rank = number(lookup, names.rank);
    const auto size = number(lookup, names.size);
    if (!rank || !size) continue;
    RankEnvironment found{.launcher = names.launcher, .rank = *rank, .size = *size};
    // A shell inside a Slurm allocation has these variables too; only a job step (srun) makes ranks.
    if (found.launcher == "Slurm" && lookup("SLURM_STEP_ID") == nullptr) continue;
    require(*size >= 1 && *rank < *size, ErrorKind::kUsage, "{}={} and {}={} do not fit together", names.rank, *rank,
            names.size, *size);
    found.local_size = number(lookup, names.local_size).value_or(*size);
    found.local_rank = number(lookup, names.local_rank).value_or(*rank % std::max(1, found.local_size));
    if (found.launcher == "torchrun") {
      const char* address = lookup("MASTER_ADDR");
      found.master_address = address == nullptr ? "" : address;
      found.master_port = number(lookup, "MASTER_PORT").value_or(0);
      require(*size == 1 || (!found.master_address.empty() && found.master_port > 0), ErrorKind::kUsage,
              "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not");
    }
    return found;
  }
  return std::nullopt;
}

std::optional<RankEnvironment> detect_rank_environment() {
  return detect_rank_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace strake::comm
