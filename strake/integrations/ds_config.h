#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strake/integrations/config_schema.h"
#include "strake/optim/loss_scaler.h"
#include "strake/optim/optimizer.h"
#include "strake/training/precision.h"

// DeepSpeed's configuration file, ds_config.json: parse_ds_config here, then resolve in ds_config_resolve.h.
namespace strake::integrations {

using training::Precision;

// The file behind --deepspeed (a path, inline JSON or base64; see read_config_source), checked against ds_schema():
// values have their types, deprecated keys are translated, "auto" stays where Transformers fills it in.
// Error (kConfig) listing every problem: unknown keys at any level, wrong types, what is refused and why.
CheckedValues parse_ds_config(const std::string& argument);

enum class DsDevice { kNone, kCpu, kNvme };

struct DsOptimizer {
  std::string type;  // Adam, AdamW, Adagrad, Lamb, Lion or SGD
  optim::OptimizerSettings settings;
  double learning_rate = 0;
  double weight_decay = 0;
};

// Parameters by DeepSpeed's names, complete: what the file leaves out has its default.
struct DsScheduler {
  std::string type;  // LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR or WarmupCosineLR
  Json params;       // total_num_steps and warmup_num_steps are null where they wait for the number of steps
};

struct DsOffloadParam {
  DsDevice device = DsDevice::kNone;
  std::string nvme_path;
  bool pin_memory = true;
};

struct DsOffloadOptimizer {
  DsDevice device = DsDevice::kNone;
  std::string nvme_path;
  int64_t buffer_count = 0;
  bool pin_memory = true;
  double ratio = 1;  // share of the state that is offloaded
};

// Sizes are elements, not bytes.
struct DsZero {
  int64_t stage = 0;
  int64_t sub_group_size = 0;
  int64_t param_persistence_threshold = 0;
  int64_t model_persistence_threshold = 0;
  int64_t hpz_partition_size = 1;  // ranks that share a second copy of the parameters; 1: none
  int64_t mics_shard_size = -1;    // ranks that share one copy of the state; -1: all
  DsOffloadParam offload_param;
  DsOffloadOptimizer offload_optimizer;
};

struct DsAio {
  int64_t block_size = 0;  // bytes
  int64_t queue_depth = 0;
};

// Monitors that are enabled, each with its folder, output_path/job_name.
struct DsMonitors {
  std::optional<std::string> tensorboard;
  std::optional<std::string> csv;
  int64_t samples_per_step = 0;  // train_batch_size: by which DeepSpeed counts what it plots over
};

// flops_profiler, which is enabled.
struct DsFlopsProfiler {
  int64_t profile_step = 1;
  int64_t top_modules = 1;
  bool detailed = true;
  std::string output_file;  // empty: standard output
};

// comms_logger, which is enabled.
struct DsCommsLogger {
  bool verbose = false;  // each operation, and not only all of them in the end
  bool all = true;
  std::vector<std::string> operations;  // the names to log, unless all
};

// What a run does because of its ds_config.json: only what is honoured, resolved, with DeepSpeed's defaults.
struct DsConfig {
  int64_t train_batch_size = 0;  // sequences of an optimizer step, of all ranks
  int64_t train_micro_batch_size_per_gpu = 0;
  int64_t gradient_accumulation_steps = 0;
  bool dataloader_drop_last = false;
  std::optional<DsOptimizer> optimizer;  // none: the flags decide
  std::optional<DsScheduler> scheduler;  // none: the flags decide
  double gradient_clipping = 0;          // 0: off
  Precision compute_dtype = Precision::kFp32;
  optim::LossScaling loss_scaling;            // for fp16
  Precision master_dtype = Precision::kFp32;  // of master weights, with bf16 of optimizer state too
  std::optional<Precision> grad_accum_dtype;
  std::optional<Precision> param_dtype;
  std::optional<Precision> communication_dtype;
  DsZero zero;
  DsAio aio;
  bool cpu_checkpointing = false;
  DsMonitors monitors;
  std::optional<DsFlopsProfiler> flops_profiler;
  std::optional<DsCommsLogger> comms_logger;
  bool wall_clock_breakdown = false;
  bool async_save = false;  // checkpoint.writer.decoupled or nebula.enabled
};

}  // namespace strake::integrations
