#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/training/options.h"
#include "strake/training/trainer.h"

namespace strake::tasks {

struct TrainConfig;

// Which stages a configuration can be changed to.
struct StageLimits {
  int lowest = 0;         // that it is not refused for
  std::string group_key;  // of zero_optimization, which has to go for a stage without groups of ranks; or empty
  bool by_fsdp = false;   // --fsdp names them, in words of its own
};

// What --deepspeed or --fsdp make of a run.
struct ShardingRequest {
  std::string source;                // of the settings, for messages
  std::string table;                 // of the resolved settings, for people; empty without --deepspeed
  nlohmann::ordered_json record;     // the same for ds_config_resolved.json; null without --deepspeed
  std::vector<std::string> notices;  // to be logged once
  StageLimits stages = {};
  training::RunLength length = {};
};

// The ranks the run has.
struct RankCount {
  int64_t world = 1;
  int64_t per_node = 1;
};

// What the "auto" of a ds_config.json follows from, besides the flags.
struct RunFacts {
  RankCount ranks;
  int64_t hidden_size = 0;
  // Optimizer steps under these options. Empty: nobody asks for a schedule.
  std::function<int64_t(const training::TrainingOptions&)> total_steps;
};

// The part that needs neither model nor data: Error for a file that does not parse and flags that contradict each
// other.
void check_sharding_flags(const TrainConfig& config);

// Sets config.training as --deepspeed, or --fsdp and --fsdp_config, say. Error (kUsage, kConfig) for contradictions and
// for what is not there.
ShardingRequest apply_sharding_flags(TrainConfig& config, const RunFacts& run);

}  // namespace strake::tasks
