#include "strake/comm/comm_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "strake/core/error.h"

namespace strake::comm {
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
  try {
    queue.post([&] { later = true; });
    queue.wait();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "lost rank 3");
  }
  EXPECT_FALSE(later);
}

}  // namespace
}  // namespace strake::comm
