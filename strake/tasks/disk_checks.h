#pragma once

#include <string>

#include "strake/tasks/memory_report.h"
#include "strake/training/sharding.h"

// What a training run needs of disks, looked at before any work is done and for --dry_run too.
namespace strake::tasks {

struct TrainConfig;

// Error (kConfig) naming `source`, where the settings come from, if the folder for what is offloaded is none, and of
// kIo if nothing can be written there.
void check_offload_folder(const training::OffloadOptions& offload, const std::string& source);

// Error (kIo) if scratch files of the ranks of a machine do not fit.
void check_offload_room(const RunVariant& variant, const std::string& source);

// Error (kIo) if the first checkpoint, where there are to be any, and the model at the end do not fit beside what is
// there, with scratch files on the same disk. Says nothing where a run is about to delete checkpoints.
void check_output_room(const TrainConfig& config, const PlannedRun& run, const RunVariant& variant);

}  // namespace strake::tasks
