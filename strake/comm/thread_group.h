#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strake/comm/rank_wait.h"
#include "strake/core/error.h"
#include "strake/tensors/touched_chunks.h"

namespace strake::comm {

// What the ranks of one process share: a barrier that a failing rank can break, and one published buffer per rank.
class ThreadGroup {
 public:
  // `names`: what the ranks are called in errors.
  ThreadGroup(std::vector<int> names, std::chrono::seconds patience)
      : buffers_(names.size()),
        touched_(names.size()),
        size_(static_cast<int>(names.size())),
        names_(std::move(names)),
        patience_(patience),
        is_here_(names_.size()) {}

  int size() const { return size_; }
  std::chrono::seconds patience() const { return patience_; }
  at::Tensor& buffer(int rank) { return buffers_[rank]; }
  // Of the buffer; null if not known. Like the buffer it lives on if its rank fails while others read it.
  std::shared_ptr<const tensors::TouchedChunks>& touched(int rank) { return touched_[rank]; }

  std::shared_ptr<void>& shared() { return shared_; }

  void wait(int rank) {
    std::unique_lock lock(mutex_);
    check_alive();
    const uint64_t generation = generation_;
    is_here_[rank] = true;
    if (std::ranges::all_of(is_here_, std::identity())) {
      is_here_.assign(is_here_.size(), false);
      ++generation_;
      changed_.notify_all();
      return;
    }
    wait_until(
        lock, [&] { return generation_ != generation; },
        [&] {
          std::vector<int> missing;
          for (int other = 0; other < size_; ++other) {
            if (!is_here_[other]) missing.push_back(name_of(other));
          }
          return overdue_text(missing, "a collective", patience_.count());
        });
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
  std::shared_ptr<ThreadGroup> make_part(int leader, const std::vector<int>& members) {
    std::vector<int> names;
    for (const int member : members) names.push_back(name_of(member));
    const std::lock_guard lock(mutex_);
    auto part = std::make_shared<ThreadGroup>(std::move(names), patience_);
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
    wait_until(
        lock, [&] { return find_mail(id) == mail_.end(); },
        [&] { return overdue_text({name_of(destination)}, "recv", patience_.count()); });
  }

  void recv(at::Tensor& values, int source, int destination) {
    std::unique_lock lock(mutex_);
    auto letter = mail_.end();
    const auto is_sent = [&] {
      letter = std::ranges::find_if(
          mail_, [&](const Letter& l) { return l.source == source && l.destination == destination; });
      return letter != mail_.end();
    };
    wait_until(lock, is_sent, [&] { return overdue_text({name_of(source)}, "send", patience_.count()); });
    check_alive();
    values.copy_(*letter->values);
    mail_.erase(letter);
    changed_.notify_all();
  }

 private:
  int name_of(int rank) const { return names_[static_cast<size_t>(rank)]; }

  struct Letter {
    const at::Tensor* values;
    int source;
    int destination;
    uint64_t id = 0;
  };

  // overdue() says what failed if that takes longer than the patience.
  template <typename Came, typename Overdue>
  void wait_until(std::unique_lock<std::mutex>& lock, const Came& came, const Overdue& overdue) {
    bool in_time = false;
    // In slices: of a time in which the whole process was paused, only one counts.
    for (std::chrono::seconds left = patience_; !in_time && left.count() > 0; left -= kLongestCounted) {
      in_time = changed_.wait_for(lock, kLongestCounted, [&] { return came() || failure_.has_value(); });
    }
    if (!in_time) {
      failure_ = overdue();
      changed_.notify_all();
    }
    if (!came()) check_alive();
  }
  void check_alive() const {
    if (failure_) throw Error(ErrorKind::kComm, *failure_);
  }
  std::vector<Letter>::iterator find_mail(uint64_t id) { return std::ranges::find(mail_, id, &Letter::id); }

  std::vector<at::Tensor> buffers_;
  std::vector<std::shared_ptr<const tensors::TouchedChunks>> touched_;
  std::vector<std::weak_ptr<ThreadGroup>> parts_;         // all groups split from this one
  std::map<int, std::weak_ptr<ThreadGroup>> next_parts_;  // of the split in progress, by leader
  std::shared_ptr<void> shared_;
  int size_;
  std::vector<int> names_;
  std::chrono::seconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> is_here_;  // of ranks, in the collective that waits
  uint64_t generation_ = 0;
  std::vector<Letter> mail_;
  uint64_t next_mail_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace strake::comm
