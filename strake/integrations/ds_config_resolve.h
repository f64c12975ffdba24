#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strake/integrations/ds_config.h"
#include "strake/training/options.h"

// ds_config.json meets the flags, as in the Transformers integration of DeepSpeed, with one difference: Transformers
// compares the file with every flag, typed or not, and so refuses "train_micro_batch_size_per_gpu": 16 to whoever
// leaves
// --per_device_train_batch_size at its default of 8. Here a default that nobody typed gives way to the file; only flags
// that were given are compared.
namespace strake::integrations {

struct ResolveInputs {
  training::TrainingOptions options;
  std::set<std::string> given_flags;  // names without "--" that the user gave, on the command line or in --config
  int64_t world_size = 1;
  std::optional<int64_t> hidden_size;  // of the model; a persistence threshold that is "auto" needs it
  std::optional<int64_t> total_steps;  // optimizer steps of the run, once the data is counted
};

// A line of the table that shows what a run does and why.
struct DsRow {
  std::string key;
  Json value;
  std::string origin;  // "file", "auto <- --learning_rate", "--max_grad_norm", "default", ...
};

struct ResolvedDsConfig {
  std::string source;
  DsConfig config;
  std::vector<DsRow> rows;           // in the order of DeepSpeed's documentation
  std::vector<std::string> notices;  // to be logged once
};

// Fills in "auto" and what the file leaves out:
//   batch sizes     train_batch_size = micro-batch * accumulation * ranks; any two give the third. "auto" takes the
//                   flag; where train_batch_size is a number, accumulation gives way unless its flag was given.
//   optimizer       lr, betas, eps, weight_decay from the flags; DeepSpeed's default where the key is missing and the
//                   flag not given.
//   scheduler       warmup_min_lr 0, warmup_max_lr the learning rate, warmup_num_steps and total_num_steps from
//                   `total_steps`; null while that is unknown. A pure function: resolve again when it is known.
//   stage3_param_persistence_threshold  10 hidden elements in stage 3.
//   all else        a key that is missing leaves its flag to decide, where it has one.
// Error (kConfig) listing all contradictions as "ds name=value vs --flag=value" and every combination DeepSpeed
// refuses.
ResolvedDsConfig resolve(const CheckedValues& file, const ResolveInputs& inputs);

// Rows in aligned columns: key, value, origin.
std::string format_table(const std::vector<DsRow>& rows);

// For ds_config_resolved.json: {"source", "deepspeed", "settings": {key: {"value", "from"}}, "notices"}.
nlohmann::ordered_json to_json(const ResolvedDsConfig& resolved);

// Sets the options that `config` decides, but for ZeRO.
void apply(const DsConfig& config, training::TrainingOptions& options);

}  // namespace strake::integrations
