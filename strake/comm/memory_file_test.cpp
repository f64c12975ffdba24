#include "strake/comm/memory_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>

#include "strake/core/test_error.h"

namespace strake::comm::memory_file_test {
namespace {

constexpr size_t kBytes = 100'000;

// Why it is not found.
std::string refusal(const MemoryFile::Place& place, size_t bytes = kBytes) {
  return error_of([&] { MemoryFile::find(place, bytes); }).text_of(ErrorKind::kIo);
}

TEST(MemoryFile, IsSeenByAnotherProcessAndOutlivesItsMaker) {
  std::optional<MemoryFile> file = MemoryFile::make(kBytes);
  const MemoryFile::Place place = file->place();
  const auto own = std::static_pointer_cast<char>(file->map(0, 1));
  EXPECT_EQ(own.get()[kBytes - 1], 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const MemoryFile found = MemoryFile::find(place, kBytes);
      std::memcpy(std::static_pointer_cast<char>(found.map(kBytes - 1, 1)).get(), "written", 7);
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  file.reset();
  EXPECT_EQ(std::string(own.get(), 7), "written");
  EXPECT_NE(refusal(place), "no error") << "nothing is left behind";
}

TEST(MemoryFile, IsNotTakenForAnother) {
  const MemoryFile file = MemoryFile::make(kBytes);
  MemoryFile::Place place = file.place();
  EXPECT_EQ(refusal(place), "no error");
  EXPECT_THAT(refusal(place, kBytes + 1), testing::HasSubstr("is not rank 0's"));
  ++place.inode;
  EXPECT_THAT(refusal(place), testing::HasSubstr("is not rank 0's"));
  EXPECT_THAT(refusal({.process = -1}), testing::HasSubstr("No such file or directory"));
}

// Of what has another name nothing is opened: of a FIFO that would wait for a writer.
TEST(MemoryFile, OpensNothingElse) {
  const std::string path = testing::TempDir() + "strake_memory_file_test.fifo";
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int fifo = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  struct stat facts{};
  ASSERT_EQ(::fstat(fifo, &facts), 0);
  EXPECT_THAT(refusal({.process = ::getpid(),
                       .descriptor = fifo,
                       .device = static_cast<int64_t>(facts.st_dev),
                       .inode = static_cast<int64_t>(facts.st_ino)},
                      static_cast<size_t>(facts.st_size)),
              testing::HasSubstr("is not rank 0's"));
  char byte = 0;
  EXPECT_EQ(::read(fifo, &byte, 1), 0) << "no writer has come";
  ::close(fifo);
  ::unlink(path.c_str());
}

TEST(MemoryFile, CannotBeMadeShorterUnderThoseWhoHaveIt) {
  const MemoryFile file = MemoryFile::make(kBytes);
  EXPECT_NE(::ftruncate(static_cast<int>(file.place().descriptor), 1), 0);
}

TEST(MemoryFile, SaysThatThereAreNotEnoughAddresses) {
  constexpr size_t kFarTooMuch = size_t{1} << 60;
  EXPECT_TRUE(error_of([&] {
                MemoryFile::make(kFarTooMuch).map(0, 1);
              }).says(ErrorKind::kIo, "bytes of memory in common with the other ranks"));
}

}  // namespace
}  // namespace strake::comm::memory_file_test
