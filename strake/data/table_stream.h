#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "strake/data/table.h"
#include "strake/data/table_writer.h"

namespace strake::data {

// Arrow IPC streams through two file descriptors, which stay the caller's: batches in, the same rows with columns added
// out, as engines like Spark exchange them with a worker process. A batch is a table; messages call it "<name>, batch
// 3", counting from 0. Errors: kData for what is not such a stream or not valid in itself, kIo for broken pipes.
// next() may be called in one thread while another calls begin(), write() and finish().
class TableStream {
 public:
  // Reads the schema.
  TableStream(int input, int output, std::string name);
  ~TableStream();
  TableStream(const TableStream&) = delete;
  TableStream& operator=(const TableStream&) = delete;

  // A table with the schema of the input and no rows.
  Table no_rows() const;
  // The next batch, possibly without rows; nullopt at the end of the stream. Error (kData) if the input ends without
  // the stream's end marker, or goes on behind it.
  std::optional<Table> next();
  // Makes a next() that waits for input, and all later ones, fail. Any thread may call it.
  void interrupt();

  // The schema is that of `table` and `extra`, which need no rows; it goes out with the first batch or the end. Once,
  // before write().
  void begin(const Table& table, std::span<const ExtraColumn> extra);
  // Writes a batch, with the metadata that it came with; when this returns, the reader can have it.
  void write(const Table& table, std::span<const ExtraColumn> extra);
  // Writes the end of the stream.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strake::data
