#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "strake/comm/mpi_comm.h"
#include "strake/core/memory.h"

namespace strake::comm::growing_heap_test {
namespace {

constexpr size_t kBlockBytes = 96 << 10;  // malloc extends the heap for each
constexpr int kBlocks = 4000;

// In a program with MPI, sbrk() may be UCX's, and its sbrk(0) sets the end of the heap to where it was just before:
// memory that malloc has added meanwhile is gone.
TEST(GrowingHeap, KeepsItsEndWhileHugePagesAreAskedFor) {
  decltype(&make_mpi_comm) volatile needed = &make_mpi_comm;  // so that MPI is in this program
  ASSERT_NE(needed, nullptr);
  std::atomic<bool> done{false};
  const auto large = std::make_unique<char[]>(2 << 20);
  std::vector<std::thread> askers;
  for (int i = 0; i < 2; ++i) {
    askers.emplace_back([&] {
      while (!done) ask_for_huge_pages(large.get(), 2 << 20);
    });
  }
  std::vector<std::unique_ptr<char[]>> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<char[]>(kBlockBytes));
    std::memset(blocks.back().get(), i % 100, kBlockBytes);
  }
  done = true;
  for (std::thread& asker : askers) asker.join();
  for (int i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(blocks[static_cast<size_t>(i)][kBlockBytes - 1], i % 100);
  }
}

}  // namespace
}  // namespace strake::comm::growing_heap_test
