#include "strake/training/pending_save.h"

#include <utility>

namespace strake::training {

PendingSave::PendingSave(TensorFiles files, std::unique_ptr<checkpoint::CheckpointWriter> writer,
                         std::optional<std::filesystem::path> best)
    : files_(std::move(files)), writer_(std::move(writer)), best_(std::move(best)) {
  if (!files_.is_in_memory()) return;
  is_over_ = false;
  thread_ = std::jthread([this] {
    try {
      files_.write_all();
    } catch (...) {
      error_ = std::current_exception();
    }
    is_over_ = true;
  });
}

const FileSums& PendingSave::finish() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
  return files_.sums();
}

}  // namespace strake::training
