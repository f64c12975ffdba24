#include "strake/comm/comm_queue.h"

#include <utility>

#include "strake/core/log.h"
#include "strake/tensors/compute_threads.h"

namespace strake::comm {

CommQueue::CommQueue()
    : thread_([this, rank = log::rank()] {
        log::set_rank(rank);
        run();
      }) {}

CommQueue::~CommQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t CommQueue::post(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  rethrow();
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return ++posted_;
}

void CommQueue::wait_for(uint64_t job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= job || error_; });
  rethrow();
}

void CommQueue::wait() { wait_for(posted_); }

void CommQueue::settle() noexcept {
  std::unique_lock lock(mutex_);
  done_ += jobs_.size();
  jobs_.clear();
  changed_.wait(lock, [&] { return !is_running_; });
}

void CommQueue::rethrow() {
  if (error_) std::rethrow_exception(error_);
}

void CommQueue::run() {
  strake::tensors::set_compute_threads(1);  // the other cores are computing
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !jobs_.empty() || closing_; });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    is_running_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    is_running_ = false;
    ++done_;
    if (error) {
      error_ = error;
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace strake::comm
