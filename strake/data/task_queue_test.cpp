#include "strake/data/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace strake::data::task_queue_test {
namespace {

using std::chrono::milliseconds;

TEST(TaskQueueTest, TasksRunInOrderOnAnotherThread) {
  std::vector<int> order;
  std::thread::id thread;
  TaskQueue queue(2);
  for (int i = 0; i < 100; ++i) {
    queue.push([&order, &thread, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
    });
  }
  queue.finish();
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(TaskQueueTest, PushWaitsForRoomAndSaysHowLong) {
  std::atomic<bool> go = false;
  TaskQueue queue(1);
  queue.push([&] { go.wait(false); });
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(300));
    go = true;
    go.notify_all();
  });
  queue.push([] {});
  queue.push([] {});  // there is room only once the first task has ended
  EXPECT_TRUE(go);
  queue.finish();
  EXPECT_GE(queue.seconds_waited(), 0.02);  // the other thread slept for 0.3 s, part of it before the last push
  later.join();
}

TEST(TaskQueueTest, TheFirstErrorIsThrownAndNothingRunsAfterIt) {
  bool ran = false;
  TaskQueue queue(4);
  queue.push([] { throw std::runtime_error("disk full"); });
  try {
    for (int i = 0; i < 1000; ++i) {
      queue.push([&] { ran = true; });
      std::this_thread::sleep_for(milliseconds(1));
    }
    FAIL() << "no error came";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "disk full");
  }
  EXPECT_THROW(queue.finish(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(TaskQueueTest, WhatWasPushedRunsBeforeTheQueueEnds) {
  int ran = 0;
  {
    TaskQueue queue(8);
    for (int i = 0; i < 8; ++i) queue.push([&] { ++ran; });
  }
  EXPECT_EQ(ran, 8);
}

}  // namespace
}  // namespace strake::data::task_queue_test
