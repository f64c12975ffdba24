#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace strake::scoring {

// The numbers of the rows scored so far, logits for one, in order, in a file that is only ever appended to: a
// write-ahead log. What append() has returned for survives the process. An append that comes a second or more after the
// last sync syncs all, and so does the destructor: the end of the machine costs no more than what came since.
// A record that was cut by a crash is recognised by its checksum (CRC-32C) and dropped with all that follows. A record
// also has a checksum of the texts that were scored, so that numbers never go to other texts. 16 bytes, then per record
// 40 bytes and its numbers. Reading and appending may happen in two threads.
class PredictionJournal {
 public:
  static constexpr int64_t kAnyWidth = 0;  // rows have as many numbers as they like, and tell how many
  // Opens or, if it is not there or not of `width` numbers a row, starts the journal. Errors: kIo naming the file.
  PredictionJournal(std::filesystem::path path, int64_t width);
  ~PredictionJournal();
  PredictionJournal(const PredictionJournal&) = delete;
  PredictionJournal& operator=(const PredictionJournal&) = delete;

  // What was found at opening.
  int64_t rows_found() const { return rows_found_; }
  int64_t tokens_found() const { return tokens_found_; }

  // The next numbers of the rows found.
  void read(std::span<float> numbers);

  // Rows of the job, [begin, end).
  struct Rows {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // `texts`: checksums of the next rows found, in any pieces. The first record that had other ones, once all of its
  // rows were given.
  std::optional<Rows> find_other_texts(std::span<const uint32_t> texts);

  // What was scored: at least one row.
  struct Scored {
    std::span<const uint32_t> texts;  // a checksum of each row
    std::span<const float> numbers;
    int64_t tokens = 0;
  };
  // After an error, kIo, the journal is as it was before.
  void append(const Scored& scored);
  // Rows found and appended.
  int64_t rows() const { return rows_; }  // from any thread

 private:
  struct Record;
  void start();
  void scan();
  bool sync();
  bool read_at(void* data, uint64_t bytes, uint64_t offset) const;
  bool read_record(uint64_t offset, uint64_t size, Record& record) const;
  [[noreturn]] void refuse(const char* action) const;

  std::filesystem::path path_;
  int64_t width_;
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
  int descriptor_ = -1;
  uint64_t end_ = 0;        // of the last sound record
  uint64_t found_end_ = 0;  // of the last one found
  int64_t rows_found_ = 0;
  int64_t tokens_found_ = 0;
  std::atomic<int64_t> rows_ = 0;
  uint64_t read_offset_ = 0;     // of the next number to read
  int64_t read_left_ = 0;        // numbers of its record
  uint64_t compare_offset_ = 0;  // of the record with the next row to compare
  int64_t compared_rows_ = 0;    // of this record
  uint32_t compared_texts_ = 0;  // their checksum
};

}  // namespace strake::scoring
