#include "strake/comm/thread_comm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/tensors/compute_threads.h"

namespace strake::comm {
namespace {

using tensors::ShardLayout;

// What the ranks of one process share: a barrier that a failing rank can break, and one published buffer per rank.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : buffers_(size), touched_(size), size_(size) {}

  int size() const { return size_; }
  at::Tensor& buffer(int rank) { return buffers_[rank]; }
  const tensors::TouchedChunks*& touched(int rank) { return touched_[rank]; }  // of the buffer, if known

  void wait() {
    std::unique_lock lock(mutex_);
    check_alive();
    const uint64_t generation = generation_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return generation_ != generation || failure_.has_value(); });
    if (generation_ == generation) check_alive();
  }

  void abort(const std::string& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    changed_.notify_all();
    for (const auto& part : parts_) {
      if (const auto alive = part.lock()) alive->abort(failure);
    }
  }

  void check_others() {
    const std::lock_guard lock(mutex_);
    check_alive();
  }

  // The group that the ranks with this leader form; made by the leader, between two calls of wait() for the others.
  std::shared_ptr<ThreadGroup> make_part(int leader, int size) {
    const std::lock_guard lock(mutex_);
    auto part = std::make_shared<ThreadGroup>(size);
    parts_.push_back(part);
    next_parts_[leader] = part;
    return part;
  }
  std::shared_ptr<ThreadGroup> part_of(int leader) {
    const std::lock_guard lock(mutex_);
    return next_parts_.at(leader).lock();
  }

  // Point-to-point: a sender publishes its tensor and waits until it was taken.
  void send(const at::Tensor& values, int source, int destination) {
    std::unique_lock lock(mutex_);
    mail_.push_back({&values, source, destination});
    const auto id = mail_.back().id = next_mail_++;
    changed_.notify_all();
    changed_.wait(lock, [&] { return find_mail(id) == mail_.end() || failure_.has_value(); });
    check_alive();
  }

  void recv(at::Tensor& values, int source, int destination) {
    std::unique_lock lock(mutex_);
    auto letter = mail_.end();
    changed_.wait(lock, [&] {
      letter = std::ranges::find_if(
          mail_, [&](const Letter& l) { return l.source == source && l.destination == destination; });
      return letter != mail_.end() || failure_.has_value();
    });
    check_alive();
    values.copy_(*letter->values);
    mail_.erase(letter);
    changed_.notify_all();
  }

 private:
  struct Letter {
    const at::Tensor* values;
    int source;
    int destination;
    uint64_t id = 0;
  };

  void check_alive() const {
    if (failure_) throw Error(ErrorKind::kComm, *failure_);
  }
  std::vector<Letter>::iterator find_mail(uint64_t id) { return std::ranges::find(mail_, id, &Letter::id); }

  std::vector<at::Tensor> buffers_;
  std::vector<const tensors::TouchedChunks*> touched_;
  std::vector<std::weak_ptr<ThreadGroup>> parts_;         // all groups split from this one
  std::map<int, std::weak_ptr<ThreadGroup>> next_parts_;  // of the split in progress, by leader
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  uint64_t generation_ = 0;
  std::vector<Letter> mail_;
  uint64_t next_mail_ = 0;
  std::optional<std::string> failure_;
};

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  bool is_one_process() const override { return true; }

  at::Tensor share(int64_t numel, at::ScalarType dtype) override {
    publish(rank_ == 0 ? at::zeros({numel}, dtype) : at::Tensor());
    at::Tensor shared = group_->buffer(0);
    group_->wait();
    return shared;
  }

  std::unique_ptr<Comm> split(int color) override {
    std::vector<double> own{static_cast<double>(color)};
    const std::vector<double> colors = all_gather_values(*this, own);
    int leader = -1;
    int members = 0;
    int place = 0;
    for (int other = 0; other < size(); ++other) {
      if (colors[static_cast<size_t>(other)] != own[0]) continue;
      if (leader < 0) leader = other;
      place += other < rank_ ? 1 : 0;
      ++members;
    }
    std::shared_ptr<ThreadGroup> part;
    if (leader == rank_) part = group_->make_part(leader, members);
    group_->wait();
    if (!part) part = group_->part_of(leader);
    group_->wait();
    return std::make_unique<ThreadComm>(std::move(part), place);
  }

  // Rank r alone reads and writes everybody's shard r, so the sum can be written into all buffers in place.
  void all_reduce(at::Tensor& values) override {
    publish(values);
    const ShardLayout layout(values.numel(), size());
    for_each_chunk(layout, [&](int64_t begin, int64_t count) {
      at::Tensor sum = chunk_of(0, layout, begin, count);
      for (int other = 1; other < size(); ++other) sum.add_(chunk_of(other, layout, begin, count));
      for (int other = 1; other < size(); ++other) chunk_of(other, layout, begin, count).copy_(sum);
    });
    group_->wait();
  }

  void reduce_scatter(const Addend& full, int contributors, const ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override {
    publish(full.values, full.touched);
    const auto is_touched = [&](int64_t element) {
      for (int other = 0; other < contributors; ++other) {
        const tensors::TouchedChunks* const touched = group_->touched(other);
        if (touched == nullptr || touched->has(element)) return true;
      }
      return false;
    };
    const int64_t first = layout.begin(rank_);
    for_each_chunk(layout, [&](int64_t begin, int64_t count) {
      tensors::for_each_run(first + begin, first + begin + count, is_touched,
                            [&](int64_t from, int64_t to, bool touched) {
                              at::Tensor sum = shard.narrow(0, from - first, to - from);
                              if (touched) {
                                add_up(contributors, layout, from - first, sum, fold);
                              } else if (fold == Fold::kOverwrite) {
                                sum.zero_();
                              }
                            });
    });
    group_->wait();
  }

  void all_gather(at::Tensor& full, const ShardLayout& layout) override {
    publish(full);
    for (int other = 0; other < size(); ++other) {
      if (other == rank_ || layout.size(other) == 0) continue;
      const int64_t begin = layout.begin(other);
      full.narrow(0, begin, layout.size(other)).copy_(group_->buffer(other).narrow(0, begin, layout.size(other)));
    }
    group_->wait();
  }

  void broadcast(at::Tensor& values, int root) override {
    publish(values);
    if (rank_ != root) values.copy_(group_->buffer(root));
    group_->wait();
  }

  void send(const at::Tensor& values, int destination) override { group_->send(values, rank_, destination); }
  void recv(at::Tensor& values, int source) override { group_->recv(values, source, rank_); }
  void barrier() override { group_->wait(); }
  void check_others() override { group_->check_others(); }
  void abort(ErrorKind kind, const std::string& reason) override {
    log::error("rank {} of {} stops the job: {} error: {}", rank_, size(), to_string(kind), reason);
    group_->abort(fmt::format("rank {} stopped: {}", rank_, reason));
  }

 private:
  void publish(const at::Tensor& values, const tensors::TouchedChunks* touched = nullptr) {
    group_->buffer(rank_) = values;
    group_->touched(rank_) = touched;
    group_->wait();
  }
  // Sums are taken in parts that stay in a core's cache from the first addend to the last.
  template <typename Visit>
  void for_each_chunk(const ShardLayout& layout, const Visit& visit) const {
    constexpr int64_t kChunk = int64_t{1} << 16;  // elements
    for (int64_t begin = 0; begin < layout.size(rank_); begin += kChunk) {
      visit(begin, std::min(kChunk, layout.size(rank_) - begin));
    }
  }
  // All contributors' elements of this rank's shard, from `begin` on.
  void add_up(int contributors, const ShardLayout& layout, int64_t begin, at::Tensor& sum, Fold fold) {
    const int64_t count = sum.numel();
    int next = 0;
    const bool is_fp32 = group_->buffer(0).scalar_type() == at::kFloat && sum.scalar_type() == at::kFloat;
    if (fold == Fold::kOverwrite && contributors > 1 && is_fp32) {  // the first two at once: one pass less
      at::add_out(sum, chunk_of(0, layout, begin, count), chunk_of(1, layout, begin, count));
      next = 2;
    }
    for (int other = next; other < contributors; ++other) {
      fold_piece(chunk_of(other, layout, begin, count), sum, other == 0 ? fold : Fold::kAdd);
    }
  }
  // Elements of this rank's shard in the buffer that `owner` published.
  at::Tensor chunk_of(int owner, const ShardLayout& layout, int64_t begin, int64_t count) {
    return group_->buffer(owner).narrow(0, layout.begin(rank_) + begin, count);
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

}  // namespace

void run_ranks(int ranks, int threads_per_rank, const std::function<void(Comm&)>& body) {
  const auto group = std::make_shared<ThreadGroup>(ranks);
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto run = [&](int rank) {
    log::set_rank(rank);
    tensors::set_compute_threads(threads_per_rank);
    ThreadComm comm(group, rank);
    try {
      body(comm);
    } catch (...) {
      const std::lock_guard lock(mutex);
      // Later errors are mostly "rank r stopped": only the first one is the cause.
      if (first_error) return;
      first_error = std::current_exception();
      try {
        throw;
      } catch (const Error& error) {
        comm.abort(error.kind(), error.what());
      } catch (const std::exception& error) {
        comm.abort(ErrorKind::kInternal, error.what());
      } catch (...) {
        comm.abort(ErrorKind::kInternal, "unknown error");
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace strake::comm
