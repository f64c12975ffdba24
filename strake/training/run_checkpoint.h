#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/comm/comm.h"
#include "strake/core/json.h"
#include "strake/data/batch_plan.h"
#include "strake/monitor/trainer_state.h"
#include "strake/optim/loss_scaler.h"
#include "strake/training/best_model.h"
#include "strake/training/sharded_parameters.h"
#include "strake/training/tensor_files.h"

namespace strake::training {

// Where a run stands, besides its tensors.
struct RunState {
  int64_t step = 0;  // steps done
  data::Cursor cursor;
  BestModel::State best_model;
  double loss_since_log = 0;  // sum of step losses since the last log entry
  int64_t steps_since_log = 0;
  double loss_sum = 0;  // of all steps
  double flops = 0;
  int64_t skipped_steps = 0;  // of `step`: those of fp16 that updated nothing
  optim::LossScaler::State loss_scaler;
  Json settings = {};  // step_settings
};

// Each rank writes its part into the folder of `files`, which exists: the model (write_model_parts),
// optimizer-0000R-of-0000W.safetensors with its piece of the optimizer's state, and rank 0 strake_state.json. With
// these a run goes on bit for bit, on any number of ranks and in any ZeRO stage. `fingerprint` names what must be the
// same on resuming. Collective.
void write_run(const models::Model& model, ShardedParameters& parameters, const RunState& state,
               const Json& fingerprint, TensorFiles& files);

// Every rank reads what it keeps. Collective. Error (kConfig) if the checkpoint's fingerprint differs, naming the first
// difference, or if other parameters were trained, naming them.
RunState read_run(const models::Model& model, ShardedParameters& parameters, const Json& fingerprint,
                  const std::filesystem::path& folder);

// The same errors, without reading tensors: what a run would be told that went on from `folder`.
void require_same_run(const models::Model& model, const Json& fingerprint, const std::filesystem::path& folder);

// trainer_state.json, in a checkpoint or in output_dir.
using checkpoint::kHistoryFile;
monitor::TrainerState read_history(const std::filesystem::path& folder);

}  // namespace strake::training
