#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strake::integrations {

// What Hugging Face's --fsdp and --fsdp_config ask for, in the terms of ZeRO.
struct FsdpOptions {
  int64_t stage = 3;     // 3: full_shard; 2: shard_grad_op; 0: no_shard
  bool hybrid = false;   // shards within a machine, copies between machines
  bool offload = false;  // parameters, gradients and optimizer state in host memory
  bool activation_checkpointing = false;
  std::vector<std::string> notices;  // to be logged once
};

// `words` is the value of --fsdp: one of full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 (none of
// them, or "true" as in Transformers 5: full_shard), with offload and auto_wrap. `config` is the value of
// --fsdp_config: empty, a file or inline JSON with the keys of TrainingArguments.fsdp_config, with or without "fsdp_"
// before them. Errors: kUsage for words that are unknown (with the nearest one) or contradict each other or the
// configuration; kConfig for the configuration: unknown keys, wrong types, and what is refused (XLA).
FsdpOptions parse_fsdp(const std::string& words, const std::string& config);

// The word of --fsdp for a stage of ZeRO; for stage 1, which FSDP does not have, that of the next one.
std::string fsdp_word(int64_t stage, bool hybrid);

}  // namespace strake::integrations
