#include "strake/data/task_queue.h"

#include <utility>

#include "strake/core/clock.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"

namespace strake::data {

TaskQueue::TaskQueue(size_t most)
    : most_(most), thread_([this, rank = log::rank()] {
        log::set_rank(rank);
        set_num_threads(1);  // the other threads compute
        run();
      }) {}

TaskQueue::~TaskQueue() { close(); }

void TaskQueue::push(std::function<void()> task) {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return error_ || tasks_.size() < most_; });
  seconds_waited_ += seconds_since(start);
  if (error_) std::rethrow_exception(error_);
  tasks_.push_back(std::move(task));
  work_.notify_one();
}

void TaskQueue::finish() {
  const auto start = Clock::now();
  close();
  seconds_waited_ += seconds_since(start);
  if (error_) std::rethrow_exception(error_);
}

void TaskQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    work_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void TaskQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    room_.notify_one();
    if (error_) continue;
    lock.unlock();
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
      room_.notify_one();
    }
  }
}

}  // namespace strake::data
