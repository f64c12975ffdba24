#include "strake/comm/memory_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "strake/core/error.h"

namespace strake::comm {
namespace {

constexpr size_t kBytes = 100'000;

TEST(MemoryFile, IsSeenByAnotherProcessAndOutlivesItsMaker) {
  std::optional<MemoryFile> file = MemoryFile::make(kBytes);
  const MemoryFile::Place place = file->place();
  const auto own = std::static_pointer_cast<char>(file->map());
  EXPECT_EQ(own.get()[kBytes - 1], 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto found = MemoryFile::find(place, kBytes);
    if (!found) ::_exit(1);
    std::memcpy(std::static_pointer_cast<char>(found->map()).get(), "written", 7);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  file.reset();
  EXPECT_EQ(std::string(own.get(), 7), "written");
  EXPECT_FALSE(MemoryFile::find(place, kBytes)) << "nothing is left behind";
}

TEST(MemoryFile, IsNotTakenForAnother) {
  const MemoryFile file = MemoryFile::make(kBytes);
  MemoryFile::Place place = file.place();
  EXPECT_TRUE(MemoryFile::find(place, kBytes));
  EXPECT_FALSE(MemoryFile::find(place, kBytes + 1));
  ++place.inode;
  EXPECT_FALSE(MemoryFile::find(place, kBytes));
  EXPECT_FALSE(MemoryFile::find({.process = -1}, kBytes));
  MemoryFile::Place terminal = file.place();
  terminal.descriptor = STDERR_FILENO;
  EXPECT_FALSE(MemoryFile::find(terminal, kBytes));
}

TEST(MemoryFile, SaysThatThereAreNotEnoughAddresses) {
  constexpr size_t kFarTooMuch = size_t{1} << 60;
  try {
    MemoryFile::make(kFarTooMuch).map();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("bytes of memory in common with the other ranks"));
  }
}

}  // namespace
}  // namespace strake::comm
