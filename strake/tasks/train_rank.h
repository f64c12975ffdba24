#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "strake/comm/comm.h"
#include "strake/core/json.h"
#include "strake/core/termination.h"
#include "strake/tasks/run_folder.h"
#include "strake/tasks/train.h"
#include "strake/tasks/train_job.h"
#include "strake/training/trainer.h"

namespace strake::tasks {

// How a run begins, beside its data.
struct RunStart {
  std::unique_ptr<RunFolder> folder = nullptr;  // of rank 0
  std::optional<std::filesystem::path> resume_from = std::nullopt;
  training::RunLength length = {};
  Json fingerprint = {};                                    // what must not change between start and resume
  Json evaluation = nullptr;                                // how_evaluated()
  int first_rank = 0;                                       // of this machine
  std::unique_ptr<TerminationWatch> termination = nullptr;  // null: SIGTERM ends the process
  std::string generation_config = {};                       // the model's, if it has one
  std::string sharding_record = {};                         // ds_config_resolved.json, if not empty
};

// What Transformers' generate() reads, which training does not change; "" if the model has none.
std::string read_generation_config(const std::filesystem::path& model);

// Whose matrix products a run computes with.
const char* matrix_products(const TrainConfig& config);
// What a rank computes with, on its GPU if it has one: ranks with others round otherwise.
std::string kernels_of(const TrainConfig& config, std::optional<int> gpu);

// What one rank does from its weights to the report: loads or initializes them, or goes on from a checkpoint, trains,
// and as rank 0 writes log and folder. Collective; called by each rank's thread or process.
training::TrainReport run_rank(const TrainConfig& config, const TrainJob& job, const RunStart& start,
                               comm::Comm& ranks);

}  // namespace strake::tasks
