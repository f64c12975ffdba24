#include "strake/data/table_stream.h"

#include <arrow/api.h>
#include <arrow/io/buffered.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/io_util.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "strake/data/checked_batch_arrow.h"
#include "strake/data/extra_column_arrow.h"
#include "strake/data/memory_pool_arrow.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

constexpr int64_t kWriteBytes = int64_t{1} << 16;
constexpr int64_t kMagicBytes = 4;       // what tells files from streams
constexpr int kMillisecondsToEnd = 200;  // between the end of the stream and that of the pipe

// Of the first bytes of the input. A file's would be taken for a length, and be waited for.
arrow::Status check_magic(const void* first, int64_t bytes) {
  if (bytes < kMagicBytes) return arrow::Status::OK();
  const std::string_view magic(static_cast<const char*>(first), kMagicBytes);
  const char* const kind = magic == "ARRO" ? "an Arrow file" : magic == "PAR1" ? "a Parquet file" : nullptr;
  if (kind == nullptr) return arrow::Status::OK();
  return arrow::Status::Invalid("expected an Arrow IPC stream, and this is ", kind,
                                "; pyarrow.ipc.new_stream writes streams");
}

// A counter that poll() can wait for.
class WakeUp {
 public:
  WakeUp() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    require(descriptor_ >= 0, ErrorKind::kIo, "cannot make an event: {}", std::strerror(errno));
  }
  ~WakeUp() { ::close(descriptor_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  void wake() { ::eventfd_write(descriptor_, 1); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

class PipeInput final : public arrow::io::InputStream {
 public:
  PipeInput(int descriptor, const WakeUp& wake_up) : descriptor_(descriptor), wake_up_(wake_up) {}

  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    int64_t done = 0;
    int64_t got = 1;
    while (got > 0 && done < bytes) {
      ARROW_ASSIGN_OR_RAISE(got, read_some(static_cast<char*>(out) + done, bytes - done));
      done += got;
    }
    const arrow::Status status = position_ == 0 ? check_magic(out, done) : arrow::Status::OK();
    position_ += done;
    return status.ok() ? arrow::Result<int64_t>(done) : arrow::Result<int64_t>(status);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(bytes, bounded_pool()));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, Read(bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(got));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

  // Nothing came after what was read so far.
  bool is_at_end() const { return at_end_; }
  // Whether there is more, as far as `milliseconds` show it: whoever writes may leave the pipe open.
  bool has_more(int milliseconds) {
    pollfd file{.fd = descriptor_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&file, 1, milliseconds) > 0 && ::read(descriptor_, &byte, 1) > 0;
  }

 private:
  // At least one byte; 0 at the end.
  arrow::Result<int64_t> read_some(char* out, int64_t bytes) {
    while (true) {
      if (arrow::Status status = wait(); !status.ok()) return status;
      const ssize_t got = ::read(descriptor_, out, static_cast<size_t>(bytes));
      at_end_ = got == 0;
      if (got >= 0) return got;
      const bool is_transient = errno == EINTR || errno == EAGAIN;
      if (!is_transient) return arrow::internal::IOErrorFromErrno(errno, "cannot read: ", std::strerror(errno));
    }
  }

  // Until there is input or the end of it.
  arrow::Status wait() const {
    pollfd files[2] = {{.fd = descriptor_, .events = POLLIN, .revents = 0},
                       {.fd = wake_up_.descriptor(), .events = POLLIN, .revents = 0}};
    while (::poll(files, 2, -1) < 0) {
      if (errno != EINTR) return arrow::internal::IOErrorFromErrno(errno, "cannot wait: ", std::strerror(errno));
    }
    return files[1].revents != 0 ? arrow::Status::Cancelled("interrupted") : arrow::Status::OK();
  }

  int descriptor_;
  const WakeUp& wake_up_;
  int64_t position_ = 0;
  bool at_end_ = false;
  bool closed_ = false;
};

class PipeOutput final : public arrow::io::OutputStream {
 public:
  explicit PipeOutput(int descriptor) : descriptor_(descriptor) {}

  arrow::Status Write(const void* data, int64_t bytes) override {
    const char* next = static_cast<const char*>(data);
    for (int64_t left = bytes; left > 0;) {
      const ssize_t put = ::write(descriptor_, next, static_cast<size_t>(left));
      if (put >= 0) {
        next += put;
        left -= put;
        continue;
      }
      const bool is_full = errno == EAGAIN;  // the other end may have made the pipe so that writing does not wait
      const bool is_transient = errno == EINTR || is_full;
      if (!is_transient) return arrow::internal::IOErrorFromErrno(errno, "cannot write: ", std::strerror(errno));
      pollfd file{.fd = descriptor_, .events = POLLOUT, .revents = 0};
      if (is_full) ::poll(&file, 1, -1);
    }
    position_ += bytes;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

 private:
  int descriptor_;
  int64_t position_ = 0;
  bool closed_ = false;
};

arrow::ipc::IpcReadOptions read_options() {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = bounded_pool();
  options.use_threads = false;  // the cores are the model's
  return options;
}

}  // namespace

struct TableStream::State {
  std::string name;
  std::string output_name;
  WakeUp wake_up;
  std::shared_ptr<PipeInput> input;
  std::shared_ptr<arrow::RecordBatchReader> reader;
  int64_t batch = 0;
  std::shared_ptr<arrow::io::BufferedOutputStream> output;
  std::shared_ptr<arrow::ipc::RecordBatchWriter> writer;

  // Batches that are missing, or behind the end, must not be passed over in silence.
  void check_end() const {
    require(!input->is_at_end(), ErrorKind::kData,
            "{}: the stream breaks off after {} batches, without its end marker: was whoever writes it killed?", name,
            batch);
    require(!input->has_more(kMillisecondsToEnd), ErrorKind::kData,
            "{}: there are bytes behind the end of the stream, after {} batches: a process scores one stream", name,
            batch);
  }

  static Table table_of(arrow::RecordBatchWithMetadata rows, std::string file) {
    auto content = std::make_shared<Table::Content>();
    content->batch = std::move(rows.batch);
    content->batch_metadata = std::move(rows.custom_metadata);
    content->file = std::move(file);
    return Table(std::move(content));
  }
};

TableStream::TableStream(int input, int output, std::string name) : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->output_name = "output of " + state_->name;
  guarded(state_->name, [&] {
    state_->input = std::make_shared<PipeInput>(input, state_->wake_up);
    state_->reader = value_of(arrow::ipc::RecordBatchStreamReader::Open(state_->input, read_options()), state_->name);
    state_->output = value_of(arrow::io::BufferedOutputStream::Create(kWriteBytes, arrow::default_memory_pool(),
                                                                      std::make_shared<PipeOutput>(output)),
                              state_->output_name);
  });
}

// Arrow would try to write once more, and complain on stderr.
TableStream::~TableStream() {
  if (state_ && state_->output) (void)state_->output->Abort();
}

Table TableStream::no_rows() const {
  return State::table_of({empty_batch(state_->reader->schema(), state_->name), nullptr}, state_->name);
}

std::optional<Table> TableStream::next() {
  const std::string name = fmt::format("{}, batch {}", state_->name, state_->batch);
  return guarded(name, [&]() -> std::optional<Table> {
    arrow::RecordBatchWithMetadata rows = value_of(state_->reader->ReadNext(), name);
    if (!rows.batch) {
      state_->check_end();
      return std::nullopt;
    }
    ++state_->batch;
    rows.batch = checked_batch(*rows.batch, {.encoding = std::nullopt, .file = name});
    return State::table_of(std::move(rows), name);
  });
}

void TableStream::interrupt() { state_->wake_up.wake(); }

void TableStream::begin(const Table& table, std::span<const ExtraColumn> extra) {
  guarded(state_->output_name, [&] {
    const auto batch = with_columns(table, extra, state_->output_name);
    state_->writer = value_of(arrow::ipc::MakeStreamWriter(state_->output, batch->schema()), state_->output_name);
  });
}

void TableStream::write(const Table& table, std::span<const ExtraColumn> extra) {
  require(state_->writer != nullptr, ErrorKind::kInternal, "{}: written before it was begun", state_->output_name);
  guarded(state_->output_name, [&] {
    const auto batch = with_columns(table, extra, state_->output_name);
    require_ok(state_->writer->WriteRecordBatch(*batch, table.content().batch_metadata), state_->output_name);
    require_ok(state_->output->Flush(), state_->output_name);
  });
}

void TableStream::finish() {
  require_ok(state_->writer->Close(), state_->output_name);
  require_ok(state_->output->Flush(), state_->output_name);
}

}  // namespace strake::data
