#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace strake::data {

// Runs tasks one after the other on a thread of its own, so that writing overlaps with computing. At most `most` tasks
// wait: push() blocks until there is room. After the first exception no task runs any more, and the next push() or
// finish() throws it. The destructor runs what was pushed, without a word about its errors. One thread may push.
class TaskQueue {
 public:
  explicit TaskQueue(size_t most);
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void push(std::function<void()> task);
  // Returns when all tasks have run. Nothing may be pushed afterwards.
  void finish();
  // How long push() and finish() have blocked.
  double seconds_waited() const { return seconds_waited_; }

 private:
  void run();
  void close();

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable room_, work_;
  std::deque<std::function<void()>> tasks_;
  std::exception_ptr error_;
  bool closed_ = false;
  double seconds_waited_ = 0;
  std::thread thread_;
};

}  // namespace strake::data
