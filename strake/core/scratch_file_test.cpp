#include "strake/core/scratch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/test_error.h"

namespace strake::scratch_file_test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPage = ScratchFile::kAlignment;

void fill(std::span<std::byte> bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + i / kPage + seed) & 0xFF);
}

class ScratchFileEngine : public testing::TestWithParam<ScratchFile::Engine> {
 protected:
  void SetUp() override {
    if (GetParam() == ScratchFile::Engine::kIoUring && !IoRing::open(1)) {
      GTEST_SKIP() << "the kernel does not allow io_uring";
    }
  }
};

TEST_P(ScratchFileEngine, GivesBackWhatWasWrittenWhateverTheCut) {
  constexpr size_t kBytes = 37 * kPage;
  ScratchFile file(fs::temp_directory_path(), 100 * kPage,
                   {.depth = 3, .block_bytes = 4 * kPage, .engine = GetParam()});
  EXPECT_EQ(file.uses_io_uring(), GetParam() == ScratchFile::Engine::kIoUring);
  const AlignedBytes first = allocate_aligned(kBytes);
  const AlignedBytes second = allocate_aligned(kBytes);
  fill({first.get(), kBytes}, 1);
  fill({second.get(), kBytes}, 2);
  const uint64_t a = file.write(3 * kPage, {first.get(), kBytes});
  const uint64_t b = file.write(50 * kPage, {second.get(), kBytes});
  file.wait(b);
  file.wait(a);
  const AlignedBytes back = allocate_aligned(kBytes);
  file.wait(file.read(3 * kPage, {back.get(), kBytes}));
  EXPECT_EQ(std::memcmp(back.get(), first.get(), kBytes), 0);
  file.wait(file.read(51 * kPage, {back.get(), kBytes - kPage}));
  EXPECT_EQ(std::memcmp(back.get(), second.get() + kPage, kBytes - kPage), 0);
}

TEST_P(ScratchFileEngine, ReadsZerosWhereNothingWasWritten) {
  ScratchFile file(fs::temp_directory_path(), 4 * kPage, {.engine = GetParam()});
  const AlignedBytes back = allocate_aligned(kPage);
  fill({back.get(), kPage}, 9);
  file.wait(file.read(2 * kPage, {back.get(), kPage}));
  for (size_t i = 0; i < kPage; ++i) ASSERT_EQ(back[i], std::byte{0});
}

TEST_P(ScratchFileEngine, CarriesOutTransfersThatThreadsStartAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  constexpr size_t kBytes = 5 * kPage;
  ScratchFile file(fs::temp_directory_path(), kThreads * kBytes,
                   {.depth = 2, .block_bytes = 2 * kPage, .engine = GetParam()});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const AlignedBytes sent = allocate_aligned(kBytes);
      const AlignedBytes back = allocate_aligned(kBytes);
      for (int round = 0; round < kRounds; ++round) {
        fill({sent.get(), kBytes}, static_cast<uint32_t>(i * kRounds + round));
        file.wait(file.write(i * kBytes, {sent.get(), kBytes}));
        file.wait(file.read(i * kBytes, {back.get(), kBytes}));
        wrong += std::memcmp(back.get(), sent.get(), kBytes) == 0 ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, ScratchFileEngine,
                         testing::Values(ScratchFile::Engine::kIoUring, ScratchFile::Engine::kThreads),
                         [](const auto& info) {
                           return info.param == ScratchFile::Engine::kThreads ? "Threads" : "IoUring";
                         });

TEST(ScratchFile, LeavesNothingInItsFolder) {
  const fs::path folder = fs::temp_directory_path() / ("strake_scratch_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  {
    const ScratchFile file(folder, kPage, {});
    EXPECT_TRUE(fs::is_empty(folder));
  }
  fs::remove_all(folder);
}

std::string error_of(const fs::path& folder, uint64_t bytes) {
  return strake::error_of([&] { const ScratchFile file(folder, bytes, {}); }).text;
}

TEST(ScratchFile, NamesTheFolderItCannotUse) {
  EXPECT_THAT(error_of("/no/such/folder", kPage), testing::HasSubstr("/no/such/folder is no folder"));
  const std::string full = error_of(fs::temp_directory_path(), uint64_t{1} << 50);
  EXPECT_THAT(full, testing::HasSubstr("cannot reserve 1073741824.0 MiB in " + fs::temp_directory_path().string() +
                                       ", which has "));
}

TEST(ScratchFile, RefusesTransfersOutsideOrUnaligned) {
  ScratchFile file(fs::temp_directory_path(), 4 * kPage, {});
  const AlignedBytes memory = allocate_aligned(2 * kPage);
  EXPECT_THROW(file.read(3 * kPage, {memory.get(), 2 * kPage}), Error);
  EXPECT_THROW(file.read(1, {memory.get(), kPage}), Error);
  EXPECT_THROW(file.write(0, {memory.get() + 8, kPage}), Error);
}

}  // namespace
}  // namespace strake::scratch_file_test
