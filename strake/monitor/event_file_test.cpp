#include "strake/monitor/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "strake/core/file.h"
#include "strake/core/test_error.h"

namespace strake::monitor::event_file_test {
namespace {
namespace fs = std::filesystem;
using namespace std::string_literals;

class EventFileTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  // The one file in the folder.
  std::string content() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_ / "runs")) files.push_back(entry.path());
    if (files.size() != 1) return "";
    EXPECT_THAT(files[0].filename().string(), testing::StartsWith("events.out.tfevents."));
    return read_file(files[0], 1U << 20);
  }

  fs::path folder_ = fs::temp_directory_path() / ("strake_event_file_test_" + std::to_string(::getpid()));
};

// The data of the records, of which TensorBoard checks every sum; the wall time at their begin is taken off.
std::vector<std::string> events_of(std::string_view file) {
  std::vector<std::string> events;
  while (!file.empty()) {
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    const std::string data(file.substr(12, size));
    EXPECT_EQ(file.substr(0, 16 + size), event_record(data));
    EXPECT_EQ(data[0], '\x09');
    events.push_back(data.substr(9));
    file.remove_prefix(16 + size);
  }
  return events;
}

// What tf.io.TFRecordWriter makes of Event(wall_time=1, file_version="brain.Event:2").
TEST(EventRecord, IsTensorFlows) {
  const std::string event =
      "\x09\0\0\0\0\0\0\xF0\x3F\x1A\x0D"
      "brain.Event:2"s;
  EXPECT_EQ(event_record(event), "\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22"s + event + "\x86\xBF\x57\x7A"s);
}

TEST_F(EventFileTest, HasItsVersionThenScalars) {
  EventFile file(folder_ / "runs", std::nullopt);
  file.write(std::vector<Scalar>{{"train/loss", 0.5}, {"x", -2}}, 300);
  const std::vector<std::string> events = events_of(content());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0],
            "\x1A\x0D"
            "brain.Event:2");
  EXPECT_EQ(events[1],
            "\x10\xAC\x02\x2A\x1D"
            "\x0A\x11\x0A\x0Atrain/loss\x15\0\0\0\x3F"
            "\x0A\x08\x0A\x01x\x15\0\0\0\xC0"s);
}

TEST_F(EventFileTest, TellsWhereARunGoesOn) {
  const EventFile file(folder_ / "runs", 7);
  const std::vector<std::string> events = events_of(content());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1], "\x10\x07\x3A\x02\x08\x01"s);
}

TEST_F(EventFileTest, ComesAfterEarlierOnesAlsoWhereTheClockWasSetBack) {
  const fs::path runs = folder_ / "runs";
  fs::create_directories(runs);
  const std::string earlier = "events.out.tfevents.9000000000.node.1.0";
  write_file_atomically(runs / earlier, "of a run before");
  write_file_atomically(runs / "events.out.tfevents.99999999999.of.another.program", "");
  write_file_atomically(runs / "events.out.tfevents.no-number.node.1.0", "");
  const EventFile file(runs, std::nullopt);
  const EventFile next(runs, std::nullopt);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(runs)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::Contains(testing::StartsWith("events.out.tfevents.9000000001.")));
  EXPECT_THAT(names, testing::Contains(testing::StartsWith("events.out.tfevents.9000000002.")));
  EXPECT_EQ(read_file(runs / earlier, 100), "of a run before");
}

TEST_F(EventFileTest, WhereNoFolderCanBeIsAnError) {
  write_file_atomically(folder_, "a file");
  EXPECT_TRUE(error_of([&] {
                const EventFile file(folder_ / "runs", std::nullopt);
              }).says(ErrorKind::kIo, (folder_ / "runs").string()));
}

}  // namespace
}  // namespace strake::monitor::event_file_test
