#include "strake/core/control_groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "strake/core/memory.h"
#include "strake/core/threads.h"

namespace strake::control_groups_test {
namespace {

namespace fs = std::filesystem;

// A tree like /sys/fs/cgroup.
class ControlGroups : public testing::Test {
 protected:
  ControlGroups() : root_(fs::temp_directory_path() / ("strake_control_groups_test_" + std::to_string(::getpid()))) {}
  ~ControlGroups() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  MemoryLimit limit() { return memory_limit(root_, root_ / "membership"); }
  int cores() { return available_cores(root_, root_ / "membership"); }
  std::vector<std::string> folders(const char* controller) {
    std::vector<std::string> names;
    for (const ControlGroup& group : control_groups(controller, root_, root_ / "membership")) {
      names.push_back(fs::relative(group.folder, root_).string() + (group.is_version_2 ? "" : " (version 1)"));
    }
    return names;
  }

  fs::path root_;
};

TEST_F(ControlGroups, AreThoseOfBothVersionsWithAllAboveThem) {
  write("membership", "9:cpu,cpuacct:/other\n4:memory:/\nnonsense\n0::/jobs/seven\n");
  EXPECT_EQ(folders("cpu"),
            (std::vector<std::string>{"cpu (version 1)", "cpu/other (version 1)", ".", "jobs", "jobs/seven"}));
  EXPECT_EQ(folders("memory"), (std::vector<std::string>{"memory (version 1)", ".", "jobs", "jobs/seven"}));
  write("membership", "0::/../../elsewhere\n");  // outside what a container sees
  EXPECT_EQ(folders("cpu"), (std::vector<std::string>{"."}));
}

TEST_F(ControlGroups, WithoutOneTheMachineIsItsMemory) {
  EXPECT_GT(limit().bytes, 1 << 20);
  EXPECT_EQ(limit().source, "the machine's memory");
}

TEST_F(ControlGroups, MemoryIsTheLowestOfAllAbove) {
  write("membership", "0::/jobs/seven\n");
  write("jobs/memory.max", "5000000\n");
  write("jobs/seven/memory.max", "max\n");
  EXPECT_EQ(limit().bytes, 5000000);
  EXPECT_EQ(limit().source, (root_ / "jobs/memory.max").string());
}

TEST_F(ControlGroups, MemoryOfVersion1IsFoundByItsController) {
  write("membership", "9:cpu,cpuacct:/other\n4:memory:/jobs\n");
  write("memory/jobs/memory.limit_in_bytes", "7000000\n");
  EXPECT_EQ(limit().bytes, 7000000);
}

TEST_F(ControlGroups, AContainerIsAtTheRootOfItsTree) {
  write("membership", "0::/\n");
  write("memory.max", "6000000\n");
  EXPECT_EQ(limit().bytes, 6000000);
}

// The machine of the test has at least one core, so that this is the only limit which must show.
TEST_F(ControlGroups, CoresAreThoseOfWhichThereIsTime) {
  const int all = cores();
  write("membership", "0::/jobs/seven\n");
  write("jobs/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), all);
  write("jobs/seven/cpu.max", "150000 100000\n");
  EXPECT_EQ(cores(), 1);
  write("jobs/seven/cpu.max", "50000 100000\n");  // half a core: there must be a thread
  EXPECT_EQ(cores(), 1);
  write("jobs/seven/cpu.max", "100000000 100000\n");  // more than the machine has
  EXPECT_EQ(cores(), all);
}

TEST_F(ControlGroups, CoresOfVersion1AreInTwoFiles) {
  const int all = cores();
  write("membership", "9:cpu,cpuacct:/jobs\n");
  write("cpu/jobs/cpu.cfs_quota_us", "-1\n");
  write("cpu/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), all);
  write("cpu/jobs/cpu.cfs_quota_us", "199999\n");
  EXPECT_EQ(cores(), 1);
  write("cpu/jobs/cpu.cfs_period_us", "0\n");
  EXPECT_EQ(cores(), all);
}

}  // namespace
}  // namespace strake::control_groups_test
