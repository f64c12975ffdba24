#include "strake/core/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <fstream>
#include <vector>

namespace strake::memory_test {
namespace {

namespace fs = std::filesystem;

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
}  // namespace strake::memory_test
