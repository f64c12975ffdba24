#pragma once

namespace strake::tasks {

struct TrainConfig;

// `accelerate launch` hands its configuration to the Trainer of Transformers by environment variables
// (training_args.py); strake reads flags. Error (kUsage), naming the flag, for what would train otherwise than the
// configuration says: DeepSpeed, FSDP or a mixed precision that no flag asks for.
void require_flags_for_accelerate(const TrainConfig& config);

}  // namespace strake::tasks
