#include <dlfcn.h>
#include <sys/wait.h>

#include <functional>

#include "strake/core/file.h"
#include "strake/data/table_reader.h"
#include "strake/data/table_writer.h"
#include "strake/data/test_folder.h"

namespace strake::data::memory_test {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kRows = 60000;  // 12 MB of text
constexpr int64_t kFactor = 10;

class MemoryTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    if (dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr) {
      GTEST_SKIP() << "a sanitizer keeps freed memory";
    }
  }

  // Peak resident bytes of a fresh process that runs `action`.
  static uint64_t peak_of(const std::function<void()>& action) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      action();
      const uint64_t peak = peak_resident_bytes();
      const bool written = ::write(ends[1], &peak, sizeof(peak)) == sizeof(peak);
      ::_exit(written ? 0 : 1);
    }
    uint64_t peak = 0;
    EXPECT_EQ(::read(ends[0], &peak, sizeof(peak)), static_cast<ssize_t>(sizeof(peak)));
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    ::close(ends[0]);
    ::close(ends[1]);
    return peak;
  }

  static void write_csv(const fs::path& file, int64_t rows) {
    std::ofstream out(file);
    out << "text,label\n";
    for (int64_t i = 0; i < rows; ++i) {
      out << "\"row " << i * 2654435761 % 1000003 << std::string(190, static_cast<char>('a' + i % 26)) << "\"," << i % 5
          << "\n";
    }
  }

  static int64_t count_rows(const fs::path& file) {
    int64_t rows = 0;
    TableReader reader({.paths = {file}});
    while (const auto table = reader.next()) {
      const TextColumn text = table->text("text");
      for (int64_t i = 0; i < text.size(); ++i) rows += text[i].empty() ? 0 : 1;
    }
    return rows;
  }

  static void convert(const fs::path& csv, const fs::path& parquet) {
    TableReader reader({.paths = {csv}});
    TableWriter writer(parquet, {.rows_per_group = int64_t{1} << 40, .bytes_per_group = int64_t{1} << 40});
    while (const auto table = reader.next()) writer.append(*table, {});
    writer.finish();
  }

  // 10 % of the smaller peak, plus room for what page alignment and the allocator's caches add by chance.
  static void expect_same_peak(uint64_t small, uint64_t large) {
    constexpr uint64_t kRoom = uint64_t{4} << 20;
    EXPECT_LE(large, small + small / 10 + kRoom) << "peaks " << (small >> 20) << " and " << (large >> 20) << " MiB";
  }
};

TEST_F(MemoryTest, PeakDoesNotGrowWithTheSizeOfCsvOrParquet) {
  const fs::path small = folder_ / "small.csv";
  const fs::path large = folder_ / "large.csv";
  write_csv(small, kRows);
  write_csv(large, kRows * kFactor);
  ASSERT_GT(fs::file_size(large), 100'000'000U);
  const auto count = [](const fs::path& file, int64_t expected) {
    return peak_of([&] {
      if (count_rows(file) != expected) ::_exit(2);
    });
  };
  expect_same_peak(count(small, kRows), count(large, kRows * kFactor));

  // One row group each: the hard case, since readers like to take whole row groups.
  peak_of([&] { convert(small, folder_ / "small.parquet"); });
  peak_of([&] { convert(large, folder_ / "large.parquet"); });
  expect_same_peak(count(folder_ / "small.parquet", kRows), count(folder_ / "large.parquet", kRows * kFactor));
}

}  // namespace
}  // namespace strake::data::memory_test
