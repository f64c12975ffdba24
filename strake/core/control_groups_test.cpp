#include "strake/core/control_groups.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
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
  MemoryLimit limit() { return memory_limit(root_, root_ / "membership", root_ / "meminfo"); }
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

TEST_F(ControlGroups, AddressesAreALimitBesideMemory) {
  const auto sources = [&] {
    std::vector<std::string> names;
    for (const MemoryLimit& limit : memory_limits(root_, root_ / "membership", root_ / "meminfo")) {
      names.push_back(limit.source);
    }
    return names;
  };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "there is a limit already";
  const rlimit low{rlim_t{1} << 45, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &low), 0);
  const std::vector<std::string> limited = sources();
  const MemoryLimit lowest = limit();
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(limited, (std::vector<std::string>{"the machine's memory", "ulimit -v"}));
  EXPECT_EQ(lowest.source, "the machine's memory");
  EXPECT_EQ(sources(), (std::vector<std::string>{"the machine's memory"}));
}

TEST_F(ControlGroups, MemoryIsTheLowestOfAllAbove) {
  write("membership", "0::/jobs/seven\n");
  write("jobs/memory.max", "5000000\n");
  write("jobs/seven/memory.max", "max\n");
  EXPECT_EQ(limit().bytes, 5000000);
  EXPECT_EQ(limit().source, (root_ / "jobs/memory.max").string());
}

TEST_F(ControlGroups, MemoryThatIsThrottledIsNotThere) {
  write("membership", "0::/jobs/seven\n");
  write("jobs/memory.high", "max\n");
  write("jobs/seven/memory.high", "4000000\n");
  write("jobs/seven/memory.max", "5000000\n");
  EXPECT_EQ(limit().bytes, 4000000);
  EXPECT_EQ(limit().source, (root_ / "jobs/seven/memory.high").string());
}

TEST_F(ControlGroups, ReservedHugePagesAreNoMemoryOfTheMachine) {
  const int64_t all = limit().bytes;
  const std::string pages = "MemTotal: 1 kB\nHugePages_Total:       4\nHugepagesize:       2048 kB\n";
  write("meminfo", pages);
  EXPECT_EQ(limit().bytes, all - (8 << 20));
  EXPECT_EQ(limit().source, "the machine's memory without reserved huge pages");
  write("meminfo", pages + "Hugetlb:           16384 kB\n");  // others of another size
  EXPECT_EQ(limit().bytes, all - (16 << 20));
  write("meminfo", "HugePages_Total:       0\nHugepagesize:       2048 kB\nHugetlb: 0 kB\n");
  EXPECT_EQ(limit().source, "the machine's memory");
}

TEST_F(ControlGroups, ALimitOfDataIsOneOfMemory) {
  constexpr int64_t kLimit = 1 << 30;
  int64_t pages = 0;
  std::ifstream sizes("/proc/self/statm");
  for (int i = 0; i < 6; ++i) sizes >> pages;
  const bool has_room = pages * ::sysconf(_SC_PAGESIZE) < kLimit / 2;
  if (!has_room) GTEST_SKIP() << "this process has more, as with AddressSanitizer";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_DATA, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = kLimit;
  write("membership", "0::/\n");
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &lower), 0);
  const MemoryLimit found = limit();
  ::setrlimit(RLIMIT_DATA, &before);
  EXPECT_EQ(found.bytes, kLimit);
  EXPECT_EQ(found.source, "ulimit -d");
  EXPECT_EQ(found.of, MemoryLimit::Of::kAddressSpace);
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
