#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/training/tensor_files.h"

namespace strake::training {

// One rank's part of a checkpoint on its way to the disk: a thread writes what `files` has in memory, while the rank
// goes on. Where that is not finished, because the run ends with an error, the destructor has it stopped; it does not
// wait for a disk that does not answer.
class PendingSave {
 public:
  // `writer`: on rank 0. `best`: the checkpoint that --save_total_limit spares, as it was when this one was made.
  PendingSave(TensorFiles files, std::unique_ptr<checkpoint::CheckpointWriter> writer,
              std::optional<std::filesystem::path> best);
  ~PendingSave();
  PendingSave(const PendingSave&) = delete;
  PendingSave& operator=(const PendingSave&) = delete;

  // True when this rank's files are there, or cannot be written.
  bool is_over() const;
  bool are_finite() const;  // the weights of this rank's files
  // Waits for it. Error as SafetensorsWriter, of the thread.
  const FileSums& finish();

  checkpoint::CheckpointWriter* writer() { return writer_.get(); }
  const std::optional<std::filesystem::path>& best() const { return best_; }

 private:
  struct Work;  // of the thread, which may outlive this object

  std::shared_ptr<Work> work_;
  std::unique_ptr<checkpoint::CheckpointWriter> writer_;
  std::optional<std::filesystem::path> best_;
  std::thread thread_;
};

}  // namespace strake::training
