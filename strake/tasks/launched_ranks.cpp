#include "strake/tasks/launched_ranks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "strake/comm/mpi_comm.h"
#include "strake/core/log.h"

namespace strake::tasks {
namespace {

// That of the first rank that has one, in the same words on all ranks.
std::optional<Error> first_error(comm::Comm& comm, const std::optional<Error>& own) {
  const std::string text = own ? own->what() : "";
  const auto kind = own ? static_cast<double>(own->kind()) : 0;
  const std::vector<double> told = comm::all_gather_values(comm, {own ? 1.0 : 0.0, kind});
  for (int rank = 0; rank < comm.size(); ++rank) {
    const double* const of_rank = &told[2 * static_cast<size_t>(rank)];
    if (of_rank[0] == 0) continue;
    const std::string words = comm::broadcast_text(comm, text, rank);
    return Error(static_cast<ErrorKind>(static_cast<int>(of_rank[1])),
                 rank == 0 ? words : fmt::format("rank {}: {}", rank, words));
  }
  return std::nullopt;
}

}  // namespace

std::optional<comm::RankEnvironment> find_launched_job() {
  auto environment = comm::detect_rank_environment();
  return environment && environment->size > 1 ? environment : std::nullopt;
}

LaunchedRanks::LaunchedRanks() : place_(find_launched_job()) {
  if (!place_) return;
  comm_ = comm::make_mpi_comm(*place_);
  log::set_rank(place_->rank);
  most_on_a_machine_ =
      static_cast<int>(std::ranges::max(comm::all_gather_values(*comm_, {static_cast<double>(place_->local_size)})));
}

void LaunchedRanks::agree(const std::function<void()>& work) {
  if (!place_) return work();
  std::optional<Error> own;
  try {
    work();
  } catch (...) {
    own = tensors::as_error(std::current_exception());
  }
  const std::optional<Error> first = first_error(*comm_, own);
  if (!first) return;
  comm_.reset();  // nobody is missed: MPI ends in all ranks
  if (speaks()) throw Error(*first);
  throw ToldError(*first);
}

}  // namespace strake::tasks
