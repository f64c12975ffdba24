#pragma once

#include <filesystem>
#include <optional>

#include "strake/comm/comm.h"
#include "strake/core/json.h"
#include "strake/tasks/train.h"
#include "strake/tasks/train_job.h"

// What a training run finds in --output_dir, and what it may do there.
namespace strake::tasks {

bool wants_resume(const TrainConfig& config);

// --output_dir, or of the folders above it the first that is there.
std::filesystem::path output_place(const TrainConfig& config);

// Error (kIo) if --output_dir is no folder, or none that can be made or written into. Changes nothing.
void check_output_place(const TrainConfig& config);

// The checkpoint to go on from, verified; none: from the beginning. Error if what was asked for is not there, is
// damaged (kIo), or is DeepSpeed's (kConfig); also if --output_dir has checkpoints and none is sound: starting over
// would write over them.
std::optional<std::filesystem::path> find_resume(const TrainConfig& config);

// Error (kUsage) if a run that starts over, or goes on from a checkpoint elsewhere, would write over the checkpoints of
// another one, unasked.
void check_output_folder(const TrainConfig& config, const std::optional<std::filesystem::path>& resume_from);

// What must not change between start and resume, but for the number of ranks, whose product with the accumulation steps
// must stay.
Json run_fingerprint(const TrainConfig& config, const TrainJob& job, int num_ranks);

// On what data and by which rules a run that evaluates does so: its best model is the best of such evaluations.
Json how_evaluated(const TrainConfig& config, const TrainJob& job);

// --output_dir while a run reads its checkpoints and writes into it, which no other can then.
class RunFolder {
 public:
  // Changes nothing on disk. Error (kUsage) if another process has the folder.
  explicit RunFolder(const TrainConfig& config);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Makes the folder. Errors as of the constructor and of check_output_folder.
  void take(const std::optional<std::filesystem::path>& resume_from);
  // Removes what an interrupted run left and, for one that starts over, its checkpoints. To be called when nothing is
  // left that could be refused.
  void clear(const std::optional<std::filesystem::path>& resume_from);

 private:
  void lock();

  const TrainConfig& config_;
  int lock_ = -1;  // the folder itself; -1 where it is not there yet, and on file systems that do not lock folders
};

// All ranks write checkpoints into the folder that rank 0 has made: Error (kIo), the same on all ranks, if one of them
// does not see it, which would come to light when the first one is saved. Collective.
void require_same_folder(const std::filesystem::path& folder, comm::Comm& ranks);

}  // namespace strake::tasks
