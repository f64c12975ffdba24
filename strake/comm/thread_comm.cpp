#include "strake/comm/thread_comm.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include "strake/comm/rank_watch.h"
#include "strake/comm/thread_group.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/foreign_error.h"

namespace strake::comm {
namespace {

using tensors::ShardLayout;

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  bool is_one_process() const override { return true; }
  std::chrono::seconds patience() const override { return group_->patience(); }

  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) override {
    if (rank_ == 0) group_->shared() = make();
    group_->wait(rank_);
    std::shared_ptr<void> shared = group_->shared();
    group_->wait(rank_);
    if (rank_ == 0) group_->shared().reset();
    return shared;
  }

  std::unique_ptr<Comm> split(int color) override {
    std::vector<double> own{static_cast<double>(color)};
    const std::vector<double> colors = all_gather_values(*this, own);
    std::vector<int> members;
    int place = 0;
    for (int other = 0; other < size(); ++other) {
      if (colors[static_cast<size_t>(other)] != own[0]) continue;
      place += other < rank_ ? 1 : 0;
      members.push_back(other);
    }
    const int leader = members.front();
    std::shared_ptr<ThreadGroup> part;
    if (leader == rank_) part = group_->make_part(leader, members);
    group_->wait(rank_);
    if (!part) part = group_->part_of(leader);
    group_->wait(rank_);
    return std::make_unique<ThreadComm>(std::move(part), place);
  }

  // Rank r alone reads and writes everybody's shard r, so the sum can be written into all buffers in place.
  void all_reduce(at::Tensor& values) override {
    publish(values);
    const ShardLayout layout(values.numel(), size());
    for (int64_t begin = layout.begin(rank_); begin < layout.end(rank_); begin += kCachedElements) {
      const int64_t count = std::min(kCachedElements, layout.end(rank_) - begin);
      at::Tensor sum = piece(0, begin, count);
      for (int other = 1; other < size(); ++other) sum.add_(piece(other, begin, count));
      for (int other = 1; other < size(); ++other) piece(other, begin, count).copy_(sum);
    }
    withdraw();
  }

  void reduce_scatter(const Addend& full, int contributors, const ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override {
    publish(full.values, full.touched);
    std::vector<const tensors::TouchedChunks*> touched;
    for (int other = 0; other < contributors; ++other) touched.push_back(group_->touched(other).get());
    SummedPart part{.begin = layout.begin(rank_), .sum = shard};
    const auto piece_of = [&](int other, int64_t begin, int64_t count) { return piece(other, begin, count); };
    fold_pieces(touched, piece_of, part, fold);
    withdraw();
  }

  void all_gather(at::Tensor& full, const ShardLayout& layout) override {
    publish(full);
    for (int other = 0; other < size(); ++other) {
      if (other == rank_ || layout.size(other) == 0) continue;
      const int64_t begin = layout.begin(other);
      full.narrow(0, begin, layout.size(other)).copy_(group_->buffer(other).narrow(0, begin, layout.size(other)));
    }
    withdraw();
  }

  void broadcast(at::Tensor& values, int root) override {
    publish(values);
    if (rank_ != root) values.copy_(group_->buffer(root));
    withdraw();
  }

  void send(const at::Tensor& values, int destination) override { group_->send(values, rank_, destination); }
  void recv(at::Tensor& values, int source) override { group_->recv(values, source, rank_); }
  void barrier() override { group_->wait(rank_); }
  void check_others() override { group_->check_others(); }
  void abort(ErrorKind kind, const std::string& reason) override {
    log::error("rank {} of {} stops the job: {} error: {}", rank_, size(), to_string(kind), reason);
    group_->abort(fmt::format("rank {} stopped: {}", rank_, reason));
  }

 private:
  void publish(const at::Tensor& values, const tensors::TouchedChunks* touched = nullptr) {
    group_->buffer(rank_) = values;
    group_->touched(rank_) = touched == nullptr ? nullptr : std::make_shared<const tensors::TouchedChunks>(*touched);
    group_->wait(rank_);
  }
  // When all ranks are done. The memory is the caller's alone again.
  void withdraw() {
    group_->wait(rank_);
    group_->buffer(rank_).reset();
    group_->touched(rank_).reset();
  }
  // Elements of the buffer that `owner` published.
  at::Tensor piece(int owner, int64_t begin, int64_t count) { return group_->buffer(owner).narrow(0, begin, count); }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

// Threads cannot be ended, but the process can.
[[noreturn]] void end_process(const Error& cause) {
  const std::string line = error_line(cause.kind(), cause.what());
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(exit_code(cause.kind()));
}

}  // namespace

void run_ranks(int ranks, int threads_per_rank, const std::function<void(Comm&)>& body, std::chrono::seconds patience) {
  std::vector<int> names(static_cast<size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  const auto group = std::make_shared<ThreadGroup>(std::move(names), patience);
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr failure;  // of the first rank that failed
  int at_work = ranks;
  const auto run = [&](int rank) {
    log::set_rank(rank);
    tensors::set_compute_threads(threads_per_rank);
    ThreadComm comm(group, rank);
    try {
      body(comm);
    } catch (...) {
      const std::lock_guard lock(mutex);
      // Later errors are mostly "rank r stopped": only the first one is the cause.
      if (failure) return;
      failure = std::current_exception();
      const Error error = tensors::as_error(failure);
      comm.abort(error.kind(), error.what());
      changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        run(rank);
        const std::lock_guard lock(mutex);
        --at_work;
        changed.notify_all();
      });
    }
  } catch (const std::system_error& error) {  // the system allows no more
    const std::lock_guard lock(mutex);
    at_work -= ranks - static_cast<int>(threads.size());
    const std::string text =
        fmt::format("cannot start a thread for rank {} of {}: {}", threads.size(), ranks, error.what());
    if (!failure) failure = std::make_exception_ptr(Error(ErrorKind::kIo, text));
    group->abort(text);
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return at_work == 0 || failure; });
    if (!changed.wait_for(lock, kGrace, [&] { return at_work == 0; })) end_process(tensors::as_error(failure));
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace strake::comm
