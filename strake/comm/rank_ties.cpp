#include "strake/comm/rank_ties.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "strake/comm/rank_guard.h"
#include "strake/core/error.h"
#include "strake/core/parse_integer.h"

namespace strake::comm {
namespace {

// How long ranks wait at the start for others, or until others have at least a process where they would see it.
struct Patience {
  std::chrono::seconds rank{60};
  RollCallPatience process;
};
Patience start_patience() {
  const char* text = std::getenv("STRAKE_START_SECONDS");
  if (text == nullptr) return {};
  const std::chrono::seconds given(parse_integer<int>(text).value_or(0));
  require(given.count() > 0, ErrorKind::kUsage, "STRAKE_START_SECONDS={} is not a number of seconds", printable(text));
  const auto of_process = std::max(given / 6, std::chrono::seconds(1));  // as without it
  return {.rank = given, .process = {.usual = of_process, .of_launcher = of_process}};
}

RankWatch::Place place_of(const RankEnvironment& environment) {
  return {.rank = environment.rank, .num_ranks = environment.size};
}

// Returns when all ranks have come.
RankTies tie_torchrun_ranks(const RankEnvironment& environment) {
  const int port = environment.master_port + 1;
  const Patience patience = start_patience();
  RankTies ties{.has_launcher = false};
  if (const auto query = torchrun_processes(environment)) {
    ties.processes = std::make_unique<RankRollCall>(*query, patience.process);
  }
  const PmiJob job{.num_ranks = environment.size, .patience = patience.rank, .processes = ties.processes.get()};
  int socket = -1;
  try {
    if (environment.rank == 0) ties.server = std::make_unique<PmiServer>(environment.master_address, port, job);
    socket = connect_to_pmi_server(environment.master_address, port,
                                   environment.rank == 0 ? PmiJob{.patience = patience.rank} : job);
  } catch (Error& error) {
    error.add_context(fmt::format("MASTER_ADDR={}, MASTER_PORT={} (ranks meet at the port behind it)",
                                  printable(environment.master_address), environment.master_port));
    throw;
  }
  // Of a launcher that started torchrun, whose connection is not there any more: their numbers may be those of files.
  for (const char* name : {"PMI_FD", "HYDI_CONTROL_FD"}) ::unsetenv(name);
  ties.watch = std::make_shared<RankWatch>(socket, place_of(environment), RankWatch::Server::kRankZero);
  ties.watch->wait_for_all(patience.rank);
  ::setenv("PMI_PORT", fmt::format("{}:{}", environment.master_address, port).c_str(), 1);
  ::setenv("PMI_ID", std::to_string(environment.rank).c_str(), 1);
  ::setenv("PMI_RANK", std::to_string(environment.rank).c_str(), 1);
  ::setenv("PMI_SIZE", std::to_string(environment.size).c_str(), 1);
  return ties;
}

}  // namespace

RankTies tie_ranks(const RankEnvironment& environment) {
  if (environment.size == 1) return {};
  if (environment.launcher == "torchrun") return tie_torchrun_ranks(environment);
  RankTies ties;
  if (const auto socket = join_rank_guard(environment)) {
    ties.watch = std::make_shared<RankWatch>(*socket, place_of(environment), RankWatch::Server::kGuard);
  }
  return ties;
}

}  // namespace strake::comm
