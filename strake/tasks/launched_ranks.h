#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "strake/comm/comm.h"
#include "strake/comm/rank_environment.h"
#include "strake/core/error.h"
#include "strake/tensors/foreign_error.h"

namespace strake::tasks {

// An error that has been told, mostly by another rank of the job: this process ends with its exit code and says
// nothing.
class ToldError final : public Error {
 public:
  explicit ToldError(const Error& error) : Error(error) {}
};

// The place of this process among several that a launcher (mpirun, torchrun and alike) started for one job; nothing if
// it was started alone.
std::optional<comm::RankEnvironment> find_launched_job();

// body(), whose error ends the other ranks of `comm` too.
template <typename Body>
auto end_all_on_error(comm::Comm& comm, const Body& body) {
  try {
    return body();
  } catch (...) {
    const Error error = tensors::as_error(std::current_exception());
    comm.abort(error.kind(), error.what());
    throw;
  }
}

// The processes of a job of which one speaks for all; or this process alone, for which everything is as without ranks.
class LaunchedRanks {
 public:
  // Starts MPI if there are several. Error (kComm) where that fails. At most one object at a time.
  LaunchedRanks();

  bool are_several() const { return place_.has_value(); }
  int rank() const { return place_ ? place_->rank : 0; }
  bool speaks() const { return rank() == 0; }
  // These need several.
  const comm::RankEnvironment& place() const { return *place_; }
  int most_on_a_machine() const { return most_on_a_machine_; }
  comm::Comm& comm() const { return *comm_; }

  // Runs what does not communicate. Errors, which may be of some ranks only, end the job in order: rank 0 throws that
  // of the first rank that has one, the others a ToldError of its kind. Collective.
  void agree(const std::function<void()>& work);

 private:
  std::optional<comm::RankEnvironment> place_;
  std::unique_ptr<comm::Comm> comm_;
  int most_on_a_machine_ = 1;
};

}  // namespace strake::tasks
