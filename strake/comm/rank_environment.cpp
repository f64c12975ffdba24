#include "strake/comm/rank_environment.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "strake/core/error.h"
#include "strake/core/parse_integer.h"

namespace strake::comm {
namespace {

using Lookup = std::function<const char*(const char*)>;

std::optional<int> number(const Lookup& lookup, const char* name) {
  const char* text = lookup(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int> value = parse_integer<int>(text);
  require(value && *value >= 0, ErrorKind::kUsage, "environment variable {}={} is not a non-negative number", name,
          printable(text));
  return value;
}

struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_size;
  const char* local_rank;
};

constexpr Names kMpiLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"},
};
constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"};

// A shell inside a Slurm allocation has its variables too; only a step of srun makes ranks. Those of a batch script and
// of an interactive shell have reserved numbers.
bool is_job_step(const Lookup& lookup) {
  constexpr uint64_t kFirstReserved = 0xfffffff0;
  const char* const step = lookup("SLURM_STEP_ID");
  return step != nullptr && std::strtoull(step, nullptr, 10) < kFirstReserved;
}

std::optional<RankEnvironment> find(const Lookup& lookup, const Names& names) {
  const auto rank = number(lookup, names.rank);
  const auto size = number(lookup, names.size);
  if (!rank || !size) return std::nullopt;
  RankEnvironment found{.launcher = names.launcher, .rank = *rank, .size = *size};
  if (found.launcher == "Slurm" && !is_job_step(lookup)) return std::nullopt;
  require(*size >= 1 && *rank < *size, ErrorKind::kUsage, "{}={} and {}={} do not fit together", names.rank, *rank,
          names.size, *size);
  const auto local_size = number(lookup, names.local_size);
  require(local_size != 0, ErrorKind::kUsage, "{}=0, where a host has at least the rank that reads it",
          names.local_size);
  found.knows_host = local_size.has_value();
  found.local_size = local_size.value_or(*size);
  found.local_rank = number(lookup, names.local_rank).value_or(*rank % found.local_size);
  return found;
}

void find_master(const Lookup& lookup, RankEnvironment& found) {
  constexpr int kLastPort = 65534;  // ranks meet at the one behind it
  const char* const address = lookup("MASTER_ADDR");
  found.master_address = address == nullptr ? "" : address;
  const auto port = number(lookup, "MASTER_PORT");
  found.master_port = port.value_or(0);
  if (found.size == 1) return;
  require(!found.master_address.empty() && port, ErrorKind::kUsage,
          "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not");
  require(found.master_address.find(':') == std::string::npos, ErrorKind::kUsage,
          "MASTER_ADDR={} is an IPv6 address, and MPI's start takes names of hosts and IPv4 ones only",
          printable(found.master_address));
  require(*port >= 1 && *port <= kLastPort, ErrorKind::kUsage, "MASTER_PORT={} is not in [1, {}]", *port, kLastPort);
}

// A process that takes itself for a lone one would train everything once more.
void refuse_half_of_torchrun(const Lookup& lookup) {
  const auto is_more_than = [&](const char* name, int value) { return number(lookup, name).value_or(0) > value; };
  const char* const sign = is_more_than("WORLD_SIZE", 1)   ? "WORLD_SIZE"
                           : is_more_than("RANK", 0)       ? "RANK"
                           : is_more_than("LOCAL_RANK", 0) ? "LOCAL_RANK"
                                                           : nullptr;
  if (sign == nullptr) return;
  const char* const missing = number(lookup, "RANK") ? "WORLD_SIZE" : "RANK";
  fail(ErrorKind::kUsage, "{}={} is set as by torchrun, but {} is not", sign, lookup(sign), missing);
}

}  // namespace

std::optional<RankEnvironment> detect_rank_environment(const Lookup& lookup) {
  std::optional<RankEnvironment> found;
  for (const Names& names : kMpiLaunchers) {
    const auto next = find(lookup, names);
    if (!found || (next && found->size == 1)) found = next;
  }
  auto torchrun = find(lookup, kTorchrun);
  if (torchrun && (!found || torchrun->size > 1)) find_master(lookup, *torchrun);
  if (!torchrun && (!found || found->size == 1)) refuse_half_of_torchrun(lookup);
  if (!found) return torchrun;
  if (!torchrun || torchrun->size == 1) return found;
  const bool is_same = found->rank == torchrun->rank && found->size == torchrun->size;
  // A torchrun of one rank on each machine, or a script that sets its variables: srun that starts no MPI sets no more.
  const bool has_no_mpi = found->launcher == "Slurm" && lookup("PMIX_RANK") == nullptr;
  if (is_same) return has_no_mpi ? torchrun : found;
  const bool is_inner = found->size == 1 || lookup("TORCHELASTIC_RUN_ID") != nullptr;
  require(is_inner, ErrorKind::kUsage, "{} started rank {} of {}, but RANK={} and WORLD_SIZE={} are set",
          found->launcher, found->rank, found->size, torchrun->rank, torchrun->size);
  return torchrun;
}

std::optional<RankEnvironment> detect_rank_environment() {
  return detect_rank_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace strake::comm
