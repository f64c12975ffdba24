#include "strake/scoring/prediction_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake::scoring {
namespace {

constexpr uint64_t kMagic = 0x336c6e726a6b7473;  // "stkjrnl3"
constexpr int64_t kMostRows = int64_t{1} << 24;  // of a record

struct Header {
  uint64_t magic = kMagic;
  int64_t width = 0;
};

bool write_at(int file, const void* data, uint64_t bytes, uint64_t offset) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(file, next, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    next += put;
    bytes -= static_cast<uint64_t>(put);
    offset += static_cast<uint64_t>(put);
  }
  return true;
}

}  // namespace

// texts: the CRC-32C of the rows' checksums. checksum: of the numbers and what stands before it here.
struct PredictionJournal::Record {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t numbers = 0;
  uint32_t texts = 0;
  uint32_t checksum = 0;

  uint32_t checksum_of(std::span<const float> numbers) const {
    return crc32c(numbers.data(), numbers.size_bytes(), crc32c(this, offsetof(Record, checksum)));
  }
};

// False if the file ends before: what is missing was not written, but what cannot be read may have been.
bool PredictionJournal::read_at(void* data, uint64_t bytes, uint64_t offset) const {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("read");
    if (got == 0) return false;
    next += got;
    bytes -= static_cast<uint64_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

PredictionJournal::PredictionJournal(std::filesystem::path path, int64_t width)
    : path_(std::move(path)), width_(width) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse("open");
  Header header;
  if (read_at(&header, sizeof(header), 0) && header.magic == kMagic && header.width == width) {
    end_ = sizeof(Header);
    scan();
  } else {
    start();
  }
  found_end_ = end_;
  read_offset_ = sizeof(Header);
  compare_offset_ = sizeof(Header);
  rows_ = rows_found_;
}

PredictionJournal::~PredictionJournal() {
  sync_data(descriptor_);
  ::close(descriptor_);
}

void PredictionJournal::start() {
  const Header header{.width = width_};
  if (::ftruncate(descriptor_, 0) != 0 || !write_at(descriptor_, &header, sizeof(header), 0) ||
      !sync_file(descriptor_)) {
    refuse("write");
  }
  sync_directory(path_.parent_path());
  end_ = sizeof(Header);
}

bool PredictionJournal::read_record(uint64_t offset, uint64_t size, Record& record) const {
  if (size - offset < sizeof(Record) || !read_at(&record, sizeof(Record), offset)) return false;
  return record.rows > 0 && record.rows <= kMostRows && record.tokens >= 0 && record.numbers >= 0 &&
         static_cast<uint64_t>(record.numbers) <= (size - offset - sizeof(Record)) / sizeof(float) &&
         (width_ == kAnyWidth || (record.numbers % width_ == 0 && record.numbers / width_ == record.rows));
}

void PredictionJournal::scan() {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) refuse("stat");
  const auto size = static_cast<uint64_t>(status.st_size);
  std::vector<float> numbers;
  Record record;
  while (read_record(end_, size, record)) {
    numbers.resize(static_cast<size_t>(record.numbers));
    const uint64_t bytes = numbers.size() * sizeof(float);
    if (!read_at(numbers.data(), bytes, end_ + sizeof(Record)) || record.first_row != rows_found_ ||
        record.checksum != record.checksum_of(numbers)) {
      break;
    }
    end_ += sizeof(Record) + bytes;
    rows_found_ += record.rows;
    tokens_found_ += record.tokens;
  }
  if (end_ == size) return;
  log::info("{}: the last {} bytes were not completely written and are dropped", path_.string(), size - end_);
  if (::ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) refuse("cut");
}

void PredictionJournal::read(std::span<float> numbers) {
  while (!numbers.empty()) {
    while (read_left_ == 0) {
      Record record;
      require(read_record(read_offset_, found_end_, record), ErrorKind::kInternal, "{}: read beyond its end",
              path_.string());
      read_offset_ += sizeof(Record);
      read_left_ = record.numbers;
    }
    const auto part = numbers.first(static_cast<size_t>(std::min<int64_t>(read_left_, std::ssize(numbers))));
    require(read_at(part.data(), part.size_bytes(), read_offset_), ErrorKind::kIo, "{} is shorter than it was",
            path_.string());
    read_offset_ += part.size_bytes();
    read_left_ -= std::ssize(part);
    numbers = numbers.subspan(part.size());
  }
}

std::optional<PredictionJournal::Rows> PredictionJournal::find_other_texts(std::span<const uint32_t> texts) {
  while (!texts.empty()) {
    Record record;
    require(read_record(compare_offset_, found_end_, record), ErrorKind::kInternal, "{}: compared beyond its end",
            path_.string());
    const auto part = texts.first(static_cast<size_t>(std::min(record.rows - compared_rows_, std::ssize(texts))));
    compared_texts_ = crc32c(part.data(), part.size_bytes(), compared_texts_);
    compared_rows_ += std::ssize(part);
    texts = texts.subspan(part.size());
    if (compared_rows_ < record.rows) continue;
    if (compared_texts_ != record.texts) return Rows{record.first_row, record.first_row + record.rows};
    compare_offset_ += sizeof(Record) + static_cast<uint64_t>(record.numbers) * sizeof(float);
    compared_rows_ = 0;
    compared_texts_ = 0;
  }
  return std::nullopt;
}

void PredictionJournal::append(const Scored& scored) {
  Record record{.first_row = rows_,
                .rows = std::ssize(scored.texts),
                .tokens = scored.tokens,
                .numbers = std::ssize(scored.numbers),
                .texts = crc32c(scored.texts.data(), scored.texts.size_bytes())};
  const bool fits = width_ == kAnyWidth || record.rows * width_ == record.numbers;
  require(fits && record.rows > 0 && record.rows <= kMostRows, ErrorKind::kInternal,
          "{}: a record of {} numbers for {} rows of {}", path_.string(), record.numbers, record.rows, width_);
  record.checksum = record.checksum_of(scored.numbers);
  if (!write_at(descriptor_, &record, sizeof(record), end_) ||
      !write_at(descriptor_, scored.numbers.data(), scored.numbers.size_bytes(), end_ + sizeof(record)) || !sync()) {
    const int error = errno;
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, static_cast<off_t>(end_));  // scan() would do it as well
    errno = error;
    refuse("write");
  }
  end_ += sizeof(record) + scored.numbers.size_bytes();
  rows_ += record.rows;
}

// A disk takes milliseconds to do it: once a second costs nothing.
bool PredictionJournal::sync() {
  const auto now = std::chrono::steady_clock::now();
  if (now - synced_ < std::chrono::seconds(1)) return true;
  synced_ = now;
  return sync_data(descriptor_);
}

void PredictionJournal::refuse(const char* action) const {
  fail(ErrorKind::kIo, "cannot {} {}: {}", action, path_.string(), std::strerror(errno));
}

}  // namespace strake::scoring
