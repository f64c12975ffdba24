#include "strake/tasks/accelerate_environment.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "strake/core/error.h"
#include "strake/tasks/train.h"

namespace strake::tasks {
namespace {

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

bool is_on(const char* variable) {
  const std::string value = value_of(variable);
  return value == "true" || value == "1";
}

void require_flag(bool is_given, std::string_view setting, std::string_view flag) {
  require(is_given, ErrorKind::kUsage,
          "{} is set by accelerate launch, whose configuration strake does not read: pass {}, or change it there",
          setting, flag);
}

}  // namespace

void require_flags_for_accelerate(const TrainConfig& config) {
  if (is_on("ACCELERATE_USE_DEEPSPEED")) {
    require_flag(!config.deepspeed.empty(), "ACCELERATE_USE_DEEPSPEED", "--deepspeed ds_config.json");
  }
  if (is_on("ACCELERATE_USE_FSDP")) {
    require_flag(!config.fsdp.empty(), "ACCELERATE_USE_FSDP",
                 "--fsdp full_shard, and what else it says with --fsdp_config");
  }
  // A file of --deepspeed says its precision itself.
  const std::string precision = value_of("ACCELERATE_MIXED_PRECISION");
  const bool is_mixed = precision == "bf16" || precision == "fp16" || precision == "fp8";
  const bool is_decided = config.training.bf16 || config.training.fp16 || !config.deepspeed.empty();
  if (is_mixed) require_flag(is_decided, "ACCELERATE_MIXED_PRECISION=" + precision, "--bf16 true or --fp16 true");
}

}  // namespace strake::tasks
