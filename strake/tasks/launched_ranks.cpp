#include "strake/tasks/launched_ranks.h"

#include <algorithm>

#include "strake/comm/mpi_comm.h"
#include "strake/core/log.h"

namespace strake::tasks {
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
  const std::optional<Error> first = comm::first_error(*comm_, work);
  if (!first) return;
  comm_.reset();  // nobody is missed: MPI ends in all ranks
  if (speaks()) throw Error(*first);
  throw ToldError(*first);
}

}  // namespace strake::tasks
