#include "strake/core/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace strake {
namespace {

namespace fs = std::filesystem;

// A tree like /sys/fs/cgroup.
class MemoryLimitOf : public testing::Test {
 protected:
  MemoryLimitOf() : root_(fs::temp_directory_path() / ("strake_memory_test_" + std::to_string(::getpid()))) {}
  ~MemoryLimitOf() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  MemoryLimit limit() { return memory_limit(root_, root_ / "membership"); }

  fs::path root_;
};

TEST_F(MemoryLimitOf, TheMachineIsItsMemory) {
  const MemoryLimit machine = limit();
  EXPECT_GT(machine.bytes, 1 << 20);
  EXPECT_EQ(machine.source, "the machine's memory");
}

TEST_F(MemoryLimitOf, AGroupIsTheLowestOfItsParents) {
  write("membership", "0::/jobs/seven\n");
  write("jobs/memory.max", "5000000\n");
  write("jobs/seven/memory.max", "max\n");
  EXPECT_EQ(limit().bytes, 5000000);
  EXPECT_EQ(limit().source, (root_ / "jobs/memory.max").string());
}

TEST_F(MemoryLimitOf, AnOldGroupIsFoundByItsController) {
  write("membership", "9:cpu,cpuacct:/other\n4:memory:/jobs\n");
  write("memory/jobs/memory.limit_in_bytes", "7000000\n");
  EXPECT_EQ(limit().bytes, 7000000);
}

TEST_F(MemoryLimitOf, AContainerIsAtTheRootOfItsTree) {
  write("membership", "0::/\n");
  write("memory.max", "6000000\n");
  EXPECT_EQ(limit().bytes, 6000000);
}

}  // namespace
}  // namespace strake
