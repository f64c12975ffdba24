#include "strake/core/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>
#include <vector>

#include "strake/core/direct_output.h"
#include "strake/core/mapped_file.h"
#include "strake/core/test_error.h"

namespace strake::file_test {
namespace {
namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("strake_file_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(FileTest, AtomicFileReplacesOnlyOnCommit) {
  write_file_atomically(folder_ / "a", "old");
  {
    AtomicFile file(folder_ / "a");
    file.write("half");
  }
  EXPECT_EQ(read_file(folder_ / "a", 100), "old");
  write_file_atomically(folder_ / "a", "new");
  EXPECT_EQ(read_file(folder_ / "a", 100), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, FailedWriteLeavesTheOldFile) {
  write_file_atomically(folder_ / "a", "old");
  // A file size limit fails in write() as a full disk does (EFBIG instead of ENOSPC).
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit small{4096, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_of([&] { write_file_atomically(folder_ / "a", std::string(100000, 'x')); }).text;
  setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_NE(message.find("previous file is unchanged"), std::string::npos) << message;
  EXPECT_EQ(read_file(folder_ / "a", 100), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

// In pieces of this size.
void expect_written(const fs::path& path, std::string_view content, uint64_t piece) {
  AtomicFile file(path);
  file.reserve(content.size());
  for (uint64_t done = 0; done < content.size(); done += piece) file.write(content.substr(done, piece));
  file.commit();
  EXPECT_EQ(read_file(path, content.size()), content) << path << " " << piece;
  EXPECT_EQ(file.sum().bytes, content.size());
  EXPECT_EQ(file.sum().crc, crc32c(content.data(), content.size()));
}

// From where pages begin and from elsewhere; on tmpfs, too, which may not know O_DIRECT.
TEST_F(FileTest, LargeFilesAreWhatWasWritten) {
  constexpr uint64_t kBytes = (uint64_t{21} << 20) + 777;
  constexpr size_t kPage = DirectOutput::kPage;
  std::vector<char> memory(kBytes + 2 * kPage);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 2654435761U >> 13);
  const char* const page = memory.data() + (kPage - reinterpret_cast<uintptr_t>(memory.data()) % kPage);
  const fs::path shared_memory = fs::path("/dev/shm") / folder_.filename();
  std::error_code error;
  fs::create_directories(shared_memory, error);
  for (const uint64_t piece : {kBytes, uint64_t{5} << 20, uint64_t{kPage}, uint64_t{100'003}}) {
    for (const size_t offset : {0, 8}) {
      expect_written(folder_ / "large", {page + offset, kBytes}, piece);
      if (!error) expect_written(shared_memory / "large", {page + offset, kBytes}, piece);
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  fs::remove_all(shared_memory, error);
}

TEST_F(FileTest, TemporaryFilesAreKnownByTheirNames) {
  const AtomicFile file(folder_ / "model.safetensors");
  EXPECT_TRUE(is_atomic_leftover(file.temporary_path().filename().string())) << file.temporary_path();
  EXPECT_TRUE(is_atomic_leftover("model-1.safetensors.tmp-812-0"));
  for (const char* other : {"", "-", "1", "model.safetensors", "model.safetensors.tmp", "model.safetensors.tmp-812",
                            "model.safetensors.tmp-812-", "model.safetensors.tmp--0", "model.safetensors.tmp-812-0.bak",
                            "model.safetensors.tmp-812-x", "model.safetensors.tmp-a12-0", "tmp-812-0", ".tmp-812-0",
                            "model.safetensors-812-0", "checkpoint-12-3", "12-3"}) {
    EXPECT_FALSE(is_atomic_leftover(other)) << other;
  }
}

TEST_F(FileTest, FilesOfLivingProcessesAreNotAbandoned) {
  EXPECT_FALSE(is_abandoned("a.parquet.tmp-1-0")) << "the process 1 always lives";
  EXPECT_TRUE(is_abandoned("a.parquet.tmp-99999999-0")) << "more than there can be";
  EXPECT_TRUE(is_abandoned(fmt::format("a.parquet.tmp-{}-0", ::getpid()))) << "of an earlier process";
  EXPECT_FALSE(is_abandoned("a.parquet.tmp-99999999"));
  EXPECT_FALSE(is_abandoned("a.parquet"));
}

TEST_F(FileTest, LeftoversOfAProcessOfTheSameNumberAreNotInTheWay) {
  const std::string name = [&] { return AtomicFile(folder_ / "a").temporary_path().string(); }();
  const size_t at = name.rfind('-') + 1;
  const uint64_t next = std::stoull(name.substr(at)) + 1;
  for (uint64_t i = 0; i < 3; ++i) std::ofstream(name.substr(0, at) + std::to_string(next + i)) << "left";
  write_file_atomically(folder_ / "a", "new");
  EXPECT_EQ(read_file(folder_ / "a", 100), "new");
  EXPECT_EQ(read_file(name.substr(0, at) + std::to_string(next), 100), "left");
}

// For the system it ends at the character of code 0, where all temporary files are the same folder.
TEST_F(FileTest, ANameThatIsNotAllOfAPathEndsTheSearchForATemporaryOne) {
  fs::create_directory(folder_ / "a");
  const fs::path path = (folder_ / "a").string() + '\0' + "b";
  EXPECT_TRUE(error_of([&] { write_file_atomically(path, "new"); }).says(ErrorKind::kIo, "cannot write"));
}

TEST_F(FileTest, ReadFileRefusesFifosDirectoriesAndHugeFiles) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { read_file(folder_ / "fifo", 10); }).text.find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { read_file(folder_, 10); }).text.find("not a regular file"), std::string::npos);
  write_file_atomically(folder_ / "big", std::string(11, 'x'));
  EXPECT_NE(error_of([&] { read_file(folder_ / "big", 10); }).text.find("11 bytes"), std::string::npos);
  EXPECT_NE(error_of([&] { read_file(folder_ / "none", 10); }).text.find("No such file"), std::string::npos);
}

TEST_F(FileTest, NamesFromOutsideCannotLeaveTheFolder) {
  for (const std::string name : {"../x", "/etc/passwd", "a/../../b", ".hidden", "", "a b", "x\n"}) {
    EXPECT_NE(error_of([&] { resolve_inside(folder_, name, "index"); }).text.find("plain name"), std::string::npos)
        << name;
  }
  EXPECT_NE(error_of([&] { resolve_inside(folder_, std::string(10000, 'a'), "index"); }).text, "no error");
  fs::create_symlink("/etc/passwd", folder_ / "link");
  EXPECT_NE(error_of([&] { resolve_inside(folder_, "link", "index"); }).text.find("symbolic link"), std::string::npos);
  EXPECT_EQ(resolve_inside(folder_, "model-1.safetensors", "index"), folder_ / "model-1.safetensors");
}

TEST_F(FileTest, HubCacheLinksIntoBlobsAreFollowed) {
  const fs::path snapshot = folder_ / "models--m" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(folder_ / "models--m" / "blobs");
  write_file_atomically(folder_ / "models--m" / "blobs" / "f00", "w");
  fs::create_symlink("../../blobs/f00", snapshot / "model.safetensors");
  EXPECT_EQ(read_file(resolve_inside(snapshot, "model.safetensors", "model"), 10), "w");
}

TEST_F(FileTest, MappedFileShowsTheBytes) {
  write_file_atomically(folder_ / "m", "abc");
  const MappedFile file(folder_ / "m");
  ASSERT_EQ(file.size(), 3U);
  EXPECT_EQ(static_cast<char>(file.bytes()[2]), 'c');
  file.let_go(file.bytes());
  EXPECT_EQ(static_cast<char>(file.bytes()[2]), 'c');
  write_file_atomically(folder_ / "empty", "");
  EXPECT_EQ(MappedFile(folder_ / "empty").size(), 0U);
}

// "Rss" of a file's map: KiB of it that are resident in this process.
int64_t resident_kib(const fs::path& file) {
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(file.string())) continue;
    while (std::getline(maps, line)) {
      if (line.starts_with("Rss:")) return std::stoll(line.substr(4));
    }
  }
  return -1;
}

TEST_F(FileTest, PagesOfAMappedFileLeaveMemoryAndComeBack) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  write_file_atomically(folder_ / "m", std::string(8 * page, 'x'));
  const MappedFile file(folder_ / "m");
  const auto sum = [&] {
    return std::accumulate(file.bytes().begin(), file.bytes().end(), size_t{0},
                           [](size_t total, std::byte b) { return total + static_cast<size_t>(b); });
  };
  const size_t whole = sum();
  const auto kib = static_cast<int64_t>(page / 1024);
  EXPECT_EQ(resident_kib(folder_ / "m"), 8 * kib);
  file.let_go(file.bytes().subspan(1));  // not the first page, which is not whole in it
  EXPECT_EQ(resident_kib(folder_ / "m"), kib);
  EXPECT_EQ(sum(), whole);
  EXPECT_EQ(resident_kib(folder_ / "m"), 8 * kib);
}

}  // namespace
}  // namespace strake::file_test
