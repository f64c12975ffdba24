#include "strake/training/pending_save.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <stop_token>
#include <system_error>
#include <utility>

#include "strake/core/clock.h"
#include "strake/core/error.h"

namespace strake::training {

struct PendingSave::Work {
  explicit Work(TensorFiles given) : files(std::move(given)) {}
  TensorFiles files;
  std::exception_ptr error;
  std::atomic<bool> is_over = true;
  std::stop_source stop;
};

PendingSave::PendingSave(TensorFiles files, std::unique_ptr<checkpoint::CheckpointWriter> writer,
                         std::optional<std::filesystem::path> best)
    : work_(std::make_shared<Work>(std::move(files))), writer_(std::move(writer)), best_(std::move(best)) {
  if (!work_->files.is_in_memory()) return;
  work_->is_over = false;
  const auto write = [work = work_] {
    try {
      work->files.write_all(work->stop.get_token());
    } catch (...) {
      work->error = std::current_exception();
    }
    work->is_over = true;
  };
  try {
    thread_ = std::thread(write);
  } catch (const std::system_error& error) {
    if (writer_) writer_->leave();  // others write into it
    fail(ErrorKind::kIo, "no thread can be started that writes the checkpoint: {}", error.what());
  }
}

PendingSave::~PendingSave() {
  if (!thread_.joinable()) return;
  constexpr double kPatience = 0.5;  // seconds: other ranks wait for this one's end
  work_->stop.request_stop();
  for (const auto start = Clock::now(); !is_over() && seconds_since(start) < kPatience;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (is_over()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

bool PendingSave::is_over() const { return work_->is_over; }

bool PendingSave::are_finite() const { return work_->files.are_finite(); }

const FileSums& PendingSave::finish() {
  if (thread_.joinable()) thread_.join();
  if (work_->error) std::rethrow_exception(work_->error);
  return work_->files.sums();
}

}  // namespace strake::training
