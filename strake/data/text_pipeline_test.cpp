#include "strake/data/text_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "strake/core/error.h"

namespace strake::data::text_pipeline_test {
namespace {

auto count_to(int end) {
  return [next = 0, end]() mutable { return next < end ? std::optional<int>(next++) : std::nullopt; };
}

std::string message_of(const std::exception_ptr& pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(TextPipelineTest, ResultsArriveInTheOrderOfTheSource) {
  for (const int workers : {1, 2, 7}) {
    std::vector<std::string> seen;
    ordered_parallel_map(
        count_to(500),
        [](int value) {
          // Later items finish first, so that order is not an accident.
          std::this_thread::sleep_for(std::chrono::microseconds(value % 5 == 0 ? 200 : 0));
          return std::to_string(value);
        },
        [&](std::string text) { seen.push_back(std::move(text)); }, {.workers = workers});
    ASSERT_EQ(seen.size(), 500U);
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], std::to_string(i));
  }
}

TEST(TextPipelineTest, EmptySourceAndMoveOnlyItemsWork) {
  int calls = 0;
  ordered_parallel_map(count_to(0), [](int value) { return value; }, [&](int) { ++calls; }, {.workers = 3});
  EXPECT_EQ(calls, 0);
  ordered_parallel_map(
      [next = 0]() mutable { return next < 3 ? std::optional(std::make_unique<int>(next++)) : std::nullopt; },
      [](std::unique_ptr<int> value) { return value; }, [&](std::unique_ptr<int> value) { EXPECT_EQ(*value, calls++); },
      {.workers = 2});
  EXPECT_EQ(calls, 3);
}

TEST(TextPipelineTest, ItemsInFlightAreBounded) {
  std::atomic<int> read{0};
  std::atomic<int> consumed{0};
  int most = 0;
  ordered_parallel_map([&]() { return read < 200 ? std::optional<int>(read++) : std::nullopt; },
                       [](int value) { return value; },
                       [&](int) {
                         std::this_thread::sleep_for(std::chrono::microseconds(50));
                         most = std::max(most, read - consumed);
                         ++consumed;
                       },
                       {.workers = 2, .max_in_flight = 5});
  EXPECT_LE(most, 5);
  EXPECT_GE(most, 2) << "the source should read ahead of the sink";
}

TEST(TextPipelineTest, AFailingWorkerStopsTheRestAfterTheItemsBeforeIt) {
  for (int round = 0; round < 20; ++round) {
    int consumed = 0;
    std::exception_ptr caught;
    try {
      ordered_parallel_map(
          count_to(100000),
          [](int value) {
            require(value != 37 && value != 38, ErrorKind::kData, "row {} is bad", value);
            return value;
          },
          [&](int) { ++consumed; }, {.workers = 4});
    } catch (...) {
      caught = std::current_exception();
    }
    EXPECT_EQ(message_of(caught), "row 37 is bad");
    EXPECT_EQ(consumed, 37);
  }
}

TEST(TextPipelineTest, AFailingSourceIsReportedAfterWhatItHadRead) {
  int consumed = 0;
  std::exception_ptr caught;
  try {
    ordered_parallel_map(
        [next = 0]() mutable -> std::optional<int> {
          require(next < 12, ErrorKind::kIo, "disk gone");
          return next++;
        },
        [](int value) { return value; }, [&](int) { ++consumed; }, {.workers = 3});
  } catch (...) {
    caught = std::current_exception();
  }
  EXPECT_EQ(message_of(caught), "disk gone");
  EXPECT_EQ(consumed, 12);
}

TEST(TextPipelineTest, AFailingSinkEndsTheThreads) {
  std::exception_ptr caught;
  std::atomic<int> worked{0};
  try {
    ordered_parallel_map(
        count_to(1000000),
        [&](int value) {
          ++worked;
          return value;
        },
        [](int value) { require(value < 5, ErrorKind::kIo, "disk full"); }, {.workers = 3, .max_in_flight = 8});
  } catch (...) {
    caught = std::current_exception();
  }
  EXPECT_EQ(message_of(caught), "disk full");
  EXPECT_LE(worked, 5 + 8 + 1);
}

}  // namespace
}  // namespace strake::data::text_pipeline_test
