#include "strake/core/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <fstream>
#include <vector>

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

// Whether the system was asked for huge pages ("hg") at an address, by this process's list of mappings.
bool is_asked_for(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool is_there = false;
  std::ifstream mappings("/proc/self/smaps");
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) is_there = begin <= wanted && wanted < end;
    if (is_there && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

class HugePages : public testing::Test {
 protected:
  static constexpr size_t kBytes = 8 << 20;

  void SetUp() override {
    if (!fs::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "a system without huge pages";
  }
  // A block of malloc's, which only what is asked for makes one of huge pages.
  static std::vector<char> block() { return std::vector<char>(kBytes); }
};

TEST_F(HugePages, AreAskedForBehindABlockOfItsOwn) {
  const std::vector<char> mapped = block();
  EXPECT_FALSE(is_asked_for(&mapped[kBytes / 2]));
  ask_for_huge_pages(mapped.data(), kBytes);
  EXPECT_TRUE(is_asked_for(&mapped[kBytes / 2]));
}

// As under `ulimit -s unlimited`.
TEST_F(HugePages, AreAskedForBehindABlockBelowTheHeapAlone) {
  auto* const low = std::bit_cast<void*>(uintptr_t{1} << 30);
  void* const mapped =
      ::mmap(low, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(mapped, low);
  const std::vector<char> of_the_heap(100);
  ASSERT_FALSE(is_asked_for(of_the_heap.data()));
  ask_for_huge_pages(mapped, kBytes);
  EXPECT_TRUE(is_asked_for(mapped));
  EXPECT_FALSE(is_asked_for(of_the_heap.data()));
  ::munmap(mapped, kBytes);
}

TEST_F(HugePages, AreAskedForBehindAllOfAHeapThatHasGrown) {
  keep_freed_memory();
  std::vector<std::vector<char>> blocks;
  for (int i = 0; i < 20; ++i) {  // twice as much as the heap grows at once
    blocks.push_back(block());
    ask_for_huge_pages(blocks.back().data(), kBytes);
  }
  const auto expect_asked_for = [&] {
    for (const std::vector<char>& b : blocks) {
      EXPECT_TRUE(is_asked_for(b.data()));
      EXPECT_TRUE(is_asked_for(&b.back()));
    }
  };
  expect_asked_for();
  blocks.resize(2);
  return_freed_memory();  // the heap becomes shorter
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(block());
    ask_for_huge_pages(blocks.back().data(), kBytes);
  }
  expect_asked_for();
}

}  // namespace
}  // namespace strake
