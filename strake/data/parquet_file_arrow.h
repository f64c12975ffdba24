#pragma once

#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"

namespace strake::data {

// Opens a Parquet file for reading in small pieces: one page per column and a read buffer are in memory, not whole row
// groups. Errors: kIo for what cannot be opened, kData for what is not a complete Parquet file. Reading fails, rather
// than exhausts the machine, once Arrow holds 8 GiB in this process: forged page sizes ask for such amounts.
std::unique_ptr<parquet::arrow::FileReader> open_parquet_reader(const std::filesystem::path& file,
                                                                int64_t rows_per_batch);

// Runs `action`; exceptions of the Parquet library become Error (kData) naming the file.
template <typename Action>
auto guarded(const std::string& file, const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorKind::kData, "{}: {}", file, printable(error.what(), 300));
  }
}

struct ParquetOutputOptions {
  int64_t rows_per_group = 0;
  int64_t bytes_per_group = 0;
};

// A Parquet file (zstd) that appears under its name, complete and durable, at finish() and not before. The schema is
// that of the first batch. Errors are kIo naming the file.
class ParquetOutput {
 public:
  ParquetOutput(const std::filesystem::path& file, const ParquetOutputOptions& options);
  ~ParquetOutput();
  ParquetOutput(const ParquetOutput&) = delete;
  ParquetOutput& operator=(const ParquetOutput&) = delete;

  void write(const std::shared_ptr<arrow::RecordBatch>& batch);
  // At least one batch, possibly without rows, must have been written.
  FileSum finish(const std::map<std::string, std::string>& metadata);
  const std::string& name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strake::data
