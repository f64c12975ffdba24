#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace strake::comm {

// A rank's communication thread: runs collectives in the order in which they were posted while the rank computes.
// An exception of a job is thrown by the next call of post() or wait().
class CommQueue {
 public:
  CommQueue();
  ~CommQueue();  // waits for the jobs that were posted
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // Returns the job's number.
  uint64_t post(std::function<void()> job);
  // Returns when the job of that number has run.
  void wait_for(uint64_t job);
  // Returns when every posted job has run.
  void wait();
  // Drops the jobs that have not begun and returns when none runs. For destructors of what jobs use; does not throw.
  void settle() noexcept;

 private:
  void run();
  void rethrow();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  bool is_running_ = false;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace strake::comm
