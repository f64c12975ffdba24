#include "strake/comm/comm_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/test_error.h"

namespace strake::comm::comm_queue_test {
namespace {

TEST(CommQueue, RunsJobsInOrderAndWaitSeesThemAll) {
  CommQueue queue;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) queue.post([&order, i] { order.push_back(i); });
  queue.wait();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(CommQueue, AJobsErrorReachesTheCallerAndLaterJobsAreDropped) {
  CommQueue queue;
  bool later = false;
  queue.post([] { fail(ErrorKind::kComm, "lost rank 3"); });
  EXPECT_EQ(error_of([&] {
              queue.post([&] { later = true; });
              queue.wait();
            }).text,
            "lost rank 3");
  EXPECT_FALSE(later);
}

TEST(CommQueue, IsSettledWhenTheJobThatRunsIsOver) {
  CommQueue queue;
  std::promise<void> started;
  bool is_over = false;
  queue.post([&] {
    started.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_over = true;
  });
  started.get_future().wait();
  queue.settle();
  EXPECT_TRUE(is_over);
  bool is_later = false;
  queue.post([&] { is_later = true; });
  queue.wait();
  EXPECT_TRUE(is_later) << "it goes on";
}

}  // namespace
}  // namespace strake::comm::comm_queue_test
