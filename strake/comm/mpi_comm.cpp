#include "strake/comm/mpi_comm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <exception>
#include <functional>
#include <span>
#include <thread>

#include "strake/comm/rank_host.h"
#include "strake/comm/rank_ties.h"
#include "strake/comm/rank_wait.h"
#include "strake/comm/rank_watch.h"
#include "strake/comm/shared_memory.h"
#include "strake/comm/staged_comm.h"
#include "strake/core/error.h"
#include "strake/core/log.h"

namespace strake::comm {
namespace {

using tensors::ShardLayout;

void check(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ErrorKind::kComm, "{} failed: {}", operation, text.data());
}

// Only the width matters: sums are taken by us, in rank order.
MPI_Datatype transfer_type(const at::Tensor& values) {
  switch (values.element_size()) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    default:
      fail(ErrorKind::kInternal, "elements of {} bytes are not sent", values.element_size());
  }
}

int element_count(const at::Tensor& values) {
  require(values.numel() <= INT_MAX, ErrorKind::kInternal, "{} elements are too many for one message", values.numel());
  return static_cast<int>(values.numel());
}

class MpiComm final : public StagedComm {
 public:
  // Of all ranks.
  MpiComm(RankTies ties, std::chrono::seconds patience) : MpiComm(MPI_COMM_WORLD, patience, nullptr) {
    ties_ = std::move(ties);
  }
  // Takes ownership of `comm`.
  MpiComm(MPI_Comm comm, std::chrono::seconds patience, std::shared_ptr<RankWatch> watch)
      : comm_(comm), patience_(patience) {
    ties_.watch = std::move(watch);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  // Whether the ranks have memory in common, which they try. Collective.
  void find_shared_memory(const RankEnvironment& environment, const std::optional<std::string>& reason_not_to) {
    const std::optional<std::string> obstacle = try_to_share_memory(*this, reason_not_to);
    shares_memory_ = !obstacle;
    const bool is_unexpected = obstacle && environment.local_size == size_ && rank_ == 0;
    if (is_unexpected) log::info("ranks have no memory in common, and each its own parameters: {}", *obstacle);
  }
  ~MpiComm() override {
    // MPI would wait for the others
    if (is_aborted_ || std::uncaught_exceptions() > exceptions_before_) return;
    if (comm_ == MPI_COMM_WORLD) {
      wait_to_end();
      RankWatch::forget_launcher();
      MPI_Finalize();
      if (ties_.watch) ties_.watch->leave();
    } else {
      MPI_Comm_free(&comm_);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool is_one_process() const override { return false; }
  std::chrono::seconds patience() const override { return patience_; }

  void all_reduce(at::Tensor& values) override {
    if (values.numel() > ShardLayout::kAlignment) return all_reduce_by_shards(values);
    const int count = element_count(values);
    const at::Tensor all = at::empty({size_, values.numel()}, values.options());
    run("all_reduce", [&](MPI_Request* request) {
      return MPI_Iallgather(values.const_data_ptr(), count, transfer_type(values), all.mutable_data_ptr(), count,
                            transfer_type(values), comm_, request);
    });
    for (int other = 0; other < size_; ++other) {
      fold_piece(all[other], values, other == 0 ? Fold::kOverwrite : Fold::kAdd);
    }
  }

  void all_gather(at::Tensor& full, const ShardLayout& layout) override {
    std::vector<int> counts(size_);
    std::vector<int> starts(size_);
    element_count(full);
    for (int other = 0; other < size_; ++other) {
      counts[other] = static_cast<int>(layout.size(other));
      starts[other] = static_cast<int>(layout.begin(other));
    }
    run("all_gather", [&](MPI_Request* request) {
      return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, full.mutable_data_ptr(), counts.data(), starts.data(),
                             transfer_type(full), comm_, request);
    });
  }

  void broadcast(at::Tensor& values, int root) override {
    run("broadcast", [&](MPI_Request* request) {
      return MPI_Ibcast(values.mutable_data_ptr(), element_count(values), transfer_type(values), root, comm_, request);
    });
  }

  void send(const at::Tensor& values, int destination) override {
    run("send", [&](MPI_Request* request) {
      return MPI_Isend(values.const_data_ptr(), element_count(values), transfer_type(values), destination, kUserTag,
                       comm_, request);
    });
  }

  void recv(at::Tensor& values, int source) override {
    run("recv", [&](MPI_Request* request) {
      return MPI_Irecv(values.mutable_data_ptr(), element_count(values), transfer_type(values), source, kUserTag, comm_,
                       request);
    });
  }

  void barrier() override {
    run("barrier", [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
  }

  void check_others() override {
    if (ties_.watch) ties_.watch->require_all();
  }

  RankWatch* watch() override { return ties_.watch.get(); }

  bool shares_memory() const override { return shares_memory_; }
  at::Tensor share_zeros(int64_t numel, at::ScalarType dtype) override {
    require(shares_memory_, ErrorKind::kInternal, "these processes share no memory");
    if (numel == 0) return at::zeros({numel}, dtype);
    const ShardLayout layout(numel, size_);
    const size_t size = c10::elementSize(dtype);
    const OwnBytes own{.begin = static_cast<size_t>(layout.begin(rank_)) * size,
                       .count = static_cast<size_t>(layout.size(rank_)) * size};
    const std::shared_ptr<void> memory = share_memory(*this, static_cast<size_t>(numel) * size, own);
    return at::from_blob(memory.get(), {numel}, [memory](void*) {}, dtype);
  }
  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>&) override {
    fail(ErrorKind::kInternal, "processes share no objects");
  }

  std::unique_ptr<Comm> split(int color) override {
    barrier();  // MPI's own wait for a rank that does not come has no end
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, rank_, &part), "split");
    return std::make_unique<MpiComm>(part, patience_, ties_.watch);
  }

  void abort(ErrorKind kind, const std::string& reason) override {
    is_aborted_ = true;
    if (ties_.watch) ties_.watch->give_up(kind, reason);
    log::error("rank {} of {} stops the job: {} error: {}", rank_, size_, to_string(kind), reason);
    if (!ties_.has_launcher) return;
    ties_.watch.reset();
    // Launchers forward output and the abort by different ways; the abort must not be faster. Nor must it kill ranks
    // that have been told and are about to end with the error's code: the launcher would end with their signal's.
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    MPI_Abort(MPI_COMM_WORLD, exit_code(kind));
  }

 private:
  static constexpr int kUserTag = 1;
  static constexpr int kExchangeTag = 2;

  // MPI's own wait for the others, at its end, has none where one of them does not come.
  void wait_to_end() {
    try {
      barrier();
    } catch (const std::exception& error) {
      log::warning("rank {} of {} ends without the others: {}", rank_, size_, error.what());
      // Else the watch, which has the same news, ends this process while it waits in MPI. It has none of a rank 0 or a
      // guard that does not answer.
      if (!ties_.watch || !ties_.watch->has_news()) MPI_Abort(MPI_COMM_WORLD, exit_code(ErrorKind::kComm));
    }
  }

  // MPI may notice that a rank is gone before it is told which one.
  void check_alive(int code, const char* operation) const {
    if (code != MPI_SUCCESS && ties_.watch) {
      ties_.watch->wait_for_news();
      ties_.watch->require_all();
    }
    check(code, operation);
  }

  // Waits as a guest on the core: MPI's own waiting spins, and the rank's other threads are computing.
  void finish(std::span<MPI_Request> requests, const char* operation) const {
    int done = 0;
    RankWait wait(ties_.watch.get(), operation, patience_);
    while (true) {
      check_alive(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
                  operation);
      if (done != 0) return;
      if (ties_.watch) ties_.watch->require_all();
      wait.check();
      std::this_thread::yield();
    }
  }

  // Starts a non-blocking operation by start(request) and waits for it.
  template <typename Start>
  void run(const char* operation, const Start& start) const {
    std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
    check_alive(start(request.data()), operation);
    finish(request, operation);
  }

  void exchange(const Messages& sends, const Messages& receives) override {
    std::vector<MPI_Request> requests;
    for (int other = 0; other < size_; ++other) {
      const at::Tensor& in = receives[static_cast<size_t>(other)];
      if (in.defined() && in.numel() > 0) {
        check_alive(MPI_Irecv(in.mutable_data_ptr(), element_count(in), transfer_type(in), other, kExchangeTag, comm_,
                              &requests.emplace_back()),
                    "reduce_scatter");
      }
      const at::Tensor& out = sends[static_cast<size_t>(other)];
      if (out.defined() && out.numel() > 0) {
        check_alive(MPI_Isend(out.const_data_ptr(), element_count(out), transfer_type(out), other, kExchangeTag, comm_,
                              &requests.emplace_back()),
                    "reduce_scatter");
      }
    }
    finish(requests, "reduce_scatter");
  }

  MPI_Comm comm_;
  std::chrono::seconds patience_;
  RankTies ties_;
  int exceptions_before_ = std::uncaught_exceptions();
  bool is_aborted_ = false;
  bool shares_memory_ = false;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

std::unique_ptr<Comm> make_mpi_comm(RankEnvironment& environment, std::chrono::seconds patience) {
  // Their errors, before ranks wait for this one.
  const std::optional<std::string> reason_not_to_share = reason_not_to_share_memory();
  wanted_threads();
  RankTies ties = tie_ranks(environment);
  int provided = 0;
  RankWatch::start_mpi(
      [&] { check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "starting MPI"); });
  require(provided >= MPI_THREAD_SERIALIZED, ErrorKind::kComm, "this MPI library does not allow calls from threads");
  auto comm = std::make_unique<MpiComm>(std::move(ties), patience);
  require(comm->size() == environment.size && comm->rank() == environment.rank, ErrorKind::kComm,
          "{} started rank {} of {}, but the MPI library of this build sees rank {} of {}: use the launcher of the MPI "
          "strake was built with (mpirun.mpich by default)",
          environment.launcher, environment.rank, environment.size, comm->rank(), comm->size());
  find_host(*comm, environment);
  comm->find_shared_memory(environment, reason_not_to_share);
  return comm;
}

}  // namespace strake::comm
