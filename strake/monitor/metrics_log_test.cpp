#include "strake/monitor/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include "strake/core/file.h"

namespace strake::monitor::metrics_log_test {
namespace {
namespace fs = std::filesystem;

class MetricsLogTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("strake_metrics_log_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "metrics.jsonl";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string content() const { return read_file(path_, 1U << 20); }

  fs::path folder_;
  fs::path path_;
};

TEST_F(MetricsLogTest, EveryLineIsThereAtOnce) {
  MetricsLog log = MetricsLog::start(path_);
  log.append({{"step", 1}, {"loss", 0.5}});
  EXPECT_EQ(content(), "{\"loss\":0.5,\"step\":1}\n");
  log.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}, {"note", "two\nlines"}});
  EXPECT_EQ(content(), "{\"loss\":0.5,\"step\":1}\n{\"loss\":null,\"note\":\"two\\nlines\",\"step\":2}\n");
}

TEST_F(MetricsLogTest, GoesOnInANewFileWhereTheOldOneWasRemoved) {
  const fs::path path = folder_ / "run" / "metrics.jsonl";
  fs::create_directories(path.parent_path());
  MetricsLog log = MetricsLog::start(path);
  log.append({{"step", 1}});
  fs::remove_all(path.parent_path());
  log.append({{"step", 2}});
  log.append({{"step", 3}});
  EXPECT_EQ(read_file(path, 1000), "{\"step\":2}\n{\"step\":3}\n");
}

TEST_F(MetricsLogTest, StartEmptiesAnOldLog) {
  write_file_atomically(path_, "{\"step\":1}\n");
  MetricsLog::start(path_).append({{"step", 7}});
  EXPECT_EQ(content(), "{\"step\":7}\n");
}

TEST_F(MetricsLogTest, ResumeDropsWhatTheRunWillWriteAgain) {
  const std::string before = "{\"step\":10}\n{\"step\":20}\n{\"eval_loss\":0.5,\"step\":20}\n";
  write_file_atomically(path_, before + "{\"step\":30}\n{\"step\":40,\"lo");
  const std::vector<Json> entries{{{"step", 10}}, {{"step", 20}}, {{"step", 20}, {"eval_loss", 0.5}}};
  MetricsLog log = MetricsLog::resume(path_, entries);
  log.append({{"step", 30}, {"again", true}});
  EXPECT_EQ(content(), before + "{\"again\":true,\"step\":30}\n");
}

TEST_F(MetricsLogTest, ResumeDropsTheClosingLine) {
  write_file_atomically(path_, "{\"loss\":0.5,\"step\":20}\n{\"step\":20,\"train_runtime\":1.5}\n");
  const std::vector<Json> entries{{{"step", 20}, {"loss", 0.5}}, {{"step", 20}, {"train_runtime", 1.5}}};
  MetricsLog::resume(path_, entries);
  EXPECT_EQ(content(), "{\"loss\":0.5,\"step\":20}\n");
}

TEST_F(MetricsLogTest, ResumeBringsBackWhatTheFileHasLost) {
  using namespace std::string_literals;
  const std::vector<Json> entries{{{"step", 1}}, {{"step", 2}}, {{"step", 3}}};
  const std::string whole = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";
  for (const std::string& damaged : {""s, "{\"step\":1}\n\0\0\0\n{\"step\":3}\n"s, "{\"step\":1}\n{\"step\":2}\n{\"st"s,
                                     "{\"step\":2}\n{\"step\":3}\n"s, whole + whole}) {
    write_file_atomically(path_, damaged);
    MetricsLog::resume(path_, entries);
    EXPECT_EQ(content(), whole) << damaged;
  }
}

TEST_F(MetricsLogTest, ResumeLeavesASoundFileUntouched) {
  write_file_atomically(path_, "{\"step\":1}\n{\"loss\":0.1,\"step\":2}\n");
  const auto written = fs::last_write_time(path_);
  const std::vector<Json> entries{{{"step", 1}}, {{"step", 2}, {"loss", 0.1}}};
  MetricsLog::resume(path_, entries);
  EXPECT_EQ(fs::last_write_time(path_), written);
}

TEST_F(MetricsLogTest, ResumeKeepsLinesThatALongHistoryHasLeftOut) {
  write_file_atomically(path_, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  const std::vector<Json> entries{{{"step", 2}}, {{"step", 3}}};
  MetricsLog::resume(path_, entries);
  EXPECT_EQ(content(), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST_F(MetricsLogTest, ResumeFillsAnAbsentLog) {
  const std::vector<Json> entries{{{"step", 5}}};
  MetricsLog::resume(path_, entries).append({{"step", 6}});
  EXPECT_EQ(content(), "{\"step\":5}\n{\"step\":6}\n");
}

TEST_F(MetricsLogTest, ALineThatDoesNotFitLeavesTheFileAsItWas) {
  MetricsLog log = MetricsLog::start(path_);
  log.append({{"step", 1}});
  // A file size limit fails in write() as a full disk does.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit small{100, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = "no error";
  try {
    log.append({{"text", std::string(500, 'x')}});
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_THAT(message, testing::HasSubstr("cannot append to " + path_.string()));
  EXPECT_EQ(content(), "{\"step\":1}\n");
  log.append({{"step", 2}});
  EXPECT_EQ(content(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(MetricsLogTest, AnUnwritablePlaceIsAnError) {
  EXPECT_THROW(MetricsLog::start(folder_ / "absent" / "metrics.jsonl"), Error);
}

}  // namespace
}  // namespace strake::monitor::metrics_log_test
