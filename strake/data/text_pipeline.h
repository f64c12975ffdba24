#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <queue>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "strake/core/log.h"
#include "strake/core/threads.h"

namespace strake::data {

struct PipelineOptions {
  int workers = 1;            // threads that run `work`
  int64_t max_in_flight = 0;  // items read but not yet consumed; 0 means 2 per worker, plus 2
};

// The machinery of ordered_parallel_map, below, which is what callers use.
template <typename In, typename Out>
class OrderedPipeline {
 public:
  explicit OrderedPipeline(const PipelineOptions& options)
      : workers_(std::max(1, options.workers)),
        max_in_flight_(options.max_in_flight > 0 ? options.max_in_flight : 2 * int64_t{workers_} + 2) {}

  template <typename Source, typename Work, typename Sink>
  void run(Source& source, Work& work, Sink& sink) {
    const Threads threads(*this, source, work);
    for (int64_t index = 0; std::optional<Done> done = wait_for(index); ++index) {
      if (done->error) std::rethrow_exception(done->error);
      sink(std::move(*done->value));
    }
  }

 private:
  struct Done {
    std::optional<Out> value;
    std::exception_ptr error;
  };

  // Joins on every way out of run(), after telling the threads to stop.
  class Threads {
   public:
    template <typename Source, typename Work>
    Threads(OrderedPipeline& pipeline, Source& source, Work& work) : pipeline_(pipeline) {
      const int rank = log::rank();
      try {
        threads_.emplace_back([&pipeline, &source, rank] {
          log::set_rank(rank);
          pipeline.read(source);
        });
        for (int i = 0; i < pipeline.workers_; ++i) {
          threads_.emplace_back([&pipeline, &work, rank] {
            log::set_rank(rank);
            set_num_threads(1);  // the workers are the parallelism
            pipeline.serve(work);
          });
        }
      } catch (...) {
        stop();
        throw;
      }
    }
    ~Threads() { stop(); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

   private:
    void stop() {
      pipeline_.stop();
      for (std::thread& thread : threads_) thread.join();
      threads_.clear();
    }

    OrderedPipeline& pipeline_;
    std::vector<std::thread> threads_;
  };

  template <typename Source>
  void read(Source& source) {
    for (int64_t index = 0; may_read(index); ++index) {
      try {
        std::optional<In> item = source();
        if (!item) return end_at(index);
        put_input(index, std::move(*item));
      } catch (...) {
        put_output(index, {.value = std::nullopt, .error = std::current_exception()});
        return;
      }
    }
  }

  template <typename Work>
  void serve(Work& work) {
    while (std::optional<std::pair<int64_t, In>> item = take_input()) {
      Done done;
      try {
        done.value.emplace(work(std::move(item->second)));
      } catch (...) {
        done.error = std::current_exception();
      }
      put_output(item->first, std::move(done));
    }
  }

  bool may_read(int64_t index) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return stopped_ || index < consumed_ + max_in_flight_; });
    return !stopped_;
  }

  void put_input(int64_t index, In item) {
    const std::lock_guard lock(mutex_);
    inputs_.emplace(index, std::move(item));
    input_ready_.notify_one();
  }

  std::optional<std::pair<int64_t, In>> take_input() {
    std::unique_lock lock(mutex_);
    input_ready_.wait(lock, [&] { return stopped_ || !inputs_.empty() || end_; });
    if (stopped_ || inputs_.empty()) return std::nullopt;
    std::optional<std::pair<int64_t, In>> item(std::move(inputs_.front()));
    inputs_.pop();
    return item;
  }

  void put_output(int64_t index, Done done) {
    const std::lock_guard lock(mutex_);
    outputs_.emplace(index, std::move(done));
    output_ready_.notify_one();
  }

  void end_at(int64_t index) {
    const std::lock_guard lock(mutex_);
    end_ = index;
    input_ready_.notify_all();
    output_ready_.notify_one();
  }

  std::optional<Done> wait_for(int64_t index) {
    std::unique_lock lock(mutex_);
    consumed_ = index;  // everything before is done with: it has left the sink
    room_.notify_one();
    output_ready_.wait(lock, [&] { return outputs_.contains(index) || end_ == index; });
    const auto found = outputs_.find(index);
    if (found == outputs_.end()) return std::nullopt;
    Done done = std::move(found->second);
    outputs_.erase(found);
    return done;
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    room_.notify_all();
    input_ready_.notify_all();
  }

  const int workers_;
  const int64_t max_in_flight_;
  std::mutex mutex_;
  std::condition_variable room_, input_ready_, output_ready_;
  std::queue<std::pair<int64_t, In>> inputs_;
  std::map<int64_t, Done> outputs_;
  int64_t consumed_ = 0;
  std::optional<int64_t> end_;  // number of items, once known
  bool stopped_ = false;
};

// Reads, works and writes at the same time: `source()` gives std::optional<In> (nullopt at the end) in a thread of its
// own, `work(In)` gives Out in several threads at once, and `sink(Out)` is called in the calling thread in the order of
// the source. Memory is bounded by max_in_flight items. If a stage throws for item i, the items before it still reach
// the sink, then the exception leaves this call once and all threads have ended: the outcome does not depend on timing.
template <typename Source, typename Work, typename Sink>
void ordered_parallel_map(Source source, Work work, Sink sink, const PipelineOptions& options) {
  using In = typename std::invoke_result_t<Source&>::value_type;
  using Out = std::invoke_result_t<Work&, In>;
  OrderedPipeline<In, Out>(options).run(source, work, sink);
}

}  // namespace strake::data
