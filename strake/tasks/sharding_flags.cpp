#include "strake/tasks/sharding_flags.h"

#include <algorithm>
#include <limits>

#include "strake/core/error.h"
#include "strake/integrations/ds_config_resolve.h"
#include "strake/integrations/fsdp.h"
#include "strake/tasks/train.h"
#include "strake/tensors/flat_layout.h"

namespace strake::tasks {
namespace {

using integrations::DsConfig;
using integrations::DsDevice;

constexpr int kLowestWithFsdpOffload = 2;  // shard_grad_op
constexpr int64_t kPersistenceThresholdOfDeepSpeed = 100'000;

// Settings that the parser understands and the trainer cannot do yet: an error, never a run that ignores them.
void refuse_missing(const DsConfig& config, const std::string& source) {
  require(config.param_dtype.value_or(config.compute_dtype) == config.compute_dtype, ErrorKind::kConfig,
          "{}: data_types.param_dtype {} with a computation in {} is not there yet", source,
          to_string(*config.param_dtype), to_string(config.compute_dtype));
}

training::ShardingOptions sharding_of(const integrations::DsZero& zero, const RankCount& ranks) {
  // Below stage 3 these have no effect, but on what stage 3 would take.
  training::ShardingOptions sharding{.stage = training::kZeroStages.at(static_cast<size_t>(zero.stage)),
                                     .persistence_threshold = zero.param_persistence_threshold,
                                     .most_persistent = zero.model_persistence_threshold};
  // Groups of one rank are what MiCS makes of 1; of ZeRO++ it says that there are none.
  const bool has_groups = zero.mics_shard_size > 0 || zero.hpz_partition_size > 1;
  const int64_t group = zero.mics_shard_size > 0 ? zero.mics_shard_size : zero.hpz_partition_size;
  if (zero.stage < 3 || !has_groups || group == ranks.world) return sharding;
  sharding.stage = training::kHybrid;
  sharding.group_size = group;
  return sharding;
}

StageLimits stages_of(const integrations::DsZero& zero) {
  const bool needs_parameters = zero.offload_param.device != DsDevice::kNone || zero.offload_optimizer.ratio < 1;
  return {.lowest = needs_parameters ? training::OffloadOptions::kLowestStageOfParameters
                    : zero.offload_optimizer.device != DsDevice::kNone ? training::OffloadOptions::kLowestStage
                                                                       : 0,
          .group_key = zero.mics_shard_size > 0      ? "mics_shard_size"
                       : zero.hpz_partition_size > 1 ? "zero_hpz_partition_size"
                                                     : ""};
}

// A number that is brought into what strake can do, which is said where it changes the file's number.
int64_t within(const char* key, int64_t wish, int64_t least, int64_t most, std::vector<std::string>& notices) {
  const int64_t number = std::clamp(wish, least, most);
  if (number != wish) notices.push_back(fmt::format("{} {}: {} is used", key, wish, number));
  return number;
}

// To nvme, parameters lie beside the optimizer's state, in one scratch file of each rank. To cpu there is nothing to do
// for ranks on the processor.
training::OffloadOptions offload_of(const DsConfig& config, bool on_gpus, const std::string& source,
                                    std::vector<std::string>& notices) {
  const integrations::DsOffloadOptimizer& optimizer = config.zero.offload_optimizer;
  const integrations::DsOffloadParam& parameters = config.zero.offload_param;
  training::OffloadOptions offload{.optimizer = optimizer.device == DsDevice::kNvme,
                                   .parameters = parameters.device == DsDevice::kNvme,
                                   .folder = optimizer.nvme_path,
                                   .ratio = optimizer.ratio,
                                   .optimizer_to_host = on_gpus && optimizer.device == DsDevice::kCpu,
                                   .parameters_to_host = on_gpus && parameters.device == DsDevice::kCpu,
                                   .pins_windows = optimizer.pin_memory,
                                   .pins_parameters = parameters.pin_memory};
  if (!offload.optimizer && !offload.parameters && !offload.optimizer_to_host && !offload.parameters_to_host) {
    return offload;
  }
  require(
      offload.optimizer || !offload.parameters, ErrorKind::kConfig,
      "{}: offload_param to nvme needs offload_optimizer to nvme too: master weights in memory would be larger than "
      "the parameters",
      source);
  require(!offload.parameters || parameters.nvme_path == optimizer.nvme_path, ErrorKind::kConfig,
          "{}: offload_param.nvme_path {} and offload_optimizer.nvme_path {} differ; both go into one file", source,
          parameters.nvme_path, optimizer.nvme_path);
  constexpr int64_t kStep = tensors::ShardLayout::kAlignment;
  constexpr int64_t kLargestWindow = int64_t{1} << 20;
  // DeepSpeed's default is far more than a window should be: only a number that is too small is worth a word.
  offload.window_elements = std::min(within("zero_optimization.sub_group_size", config.zero.sub_group_size, kStep,
                                            std::numeric_limits<int64_t>::max(), notices) /
                                         kStep * kStep,
                                     kLargestWindow);
  offload.buffers = static_cast<int>(
      within("zero_optimization.offload_optimizer.buffer_count", optimizer.buffer_count, 2, 64, notices));
  constexpr int64_t kPage = ScratchFile::kAlignment;
  offload.file.block_bytes = static_cast<size_t>(
      within("aio.block_size", config.aio.block_size, kPage, int64_t{1} << 28, notices) / kPage * kPage);
  offload.file.depth = static_cast<int>(within("aio.queue_depth", config.aio.queue_depth, 1, 32, notices));
  return offload;
}

// A scheduler waits for the number of steps, which follows from the batch sizes that the file resolves to.
integrations::ResolvedDsConfig resolve_file(const TrainConfig& config, const RunFacts& run) {
  const integrations::CheckedValues file = integrations::parse_ds_config(config.deepspeed);
  integrations::ResolveInputs inputs{.options = config.training,
                                     .given_flags = config.given,
                                     .world_size = run.ranks.world,
                                     .hidden_size = run.hidden_size};
  integrations::ResolvedDsConfig resolved = integrations::resolve(file, inputs);
  if (!run.total_steps) resolved.config.scheduler.reset();
  if (!resolved.config.scheduler) return resolved;
  training::TrainingOptions batches = config.training;
  integrations::apply(resolved.config, batches);
  inputs.total_steps = run.total_steps(batches);
  return integrations::resolve(file, inputs);
}

// States are on disk because memory has no room for them, and copies would be in memory.
void settle_async_save(TrainConfig& config, const std::string& source, std::vector<std::string>& notices) {
  if (!config.training.async_save || !config.training.sharding.offload.optimizer) return;
  require(!config.given.contains("async_save"), ErrorKind::kConfig,
          "{}: --async_save copies the optimizer's states into memory, and offload_optimizer to nvme keeps them out of "
          "it; leave one of them out",
          source);
  config.training.async_save = false;
  notices.push_back(
      "all the same, checkpoints of this run are written before training goes on: what is offloaded to nvme is not "
      "copied into memory");
}

ShardingRequest apply_deepspeed(TrainConfig& config, const RunFacts& run) {
  integrations::ResolvedDsConfig resolved = resolve_file(config, run);
  refuse_missing(resolved.config, resolved.source);
  const auto& optimizer = resolved.config.optimizer;
  require(!optimizer || config.training.optim_args.empty(), ErrorKind::kConfig,
          "{}: optimizer.params and --optim_args contradict each other; leave one of them out", resolved.source);
  const bool says_optimizer = config.given.contains("optim");
  require(!optimizer || !says_optimizer || config.training.optimizer_settings().rule == optimizer->settings.rule,
          ErrorKind::kConfig, "{}: optimizer.type is {} and --optim is {}; leave one of them out", resolved.source,
          optimizer ? optimizer->type : "", config.training.optim);
  require(!resolved.config.scheduler || config.training.lr_scheduler_kwargs.empty(), ErrorKind::kConfig,
          "{}: scheduler.params and --lr_scheduler_kwargs contradict each other; leave one of them out",
          resolved.source);
  require(!resolved.config.async_save || config.training.async_save || !config.given.contains("async_save"),
          ErrorKind::kConfig, "{}: nebula.enabled contradicts --async_save false", resolved.source);
  integrations::apply(resolved.config, config.training);
  try {
    config.training.validate();
  } catch (Error& error) {
    error.add_context("as " + resolved.source + " has it");
    throw;
  }
  config.monitors = resolved.config.monitors;
  config.flops_profiler = resolved.config.flops_profiler;
  config.comms_logger = resolved.config.comms_logger;
  config.wall_clock_breakdown = resolved.config.wall_clock_breakdown;
  config.training.sharding = sharding_of(resolved.config.zero, run.ranks);
  const bool on_gpus = config.trains_on_gpus();
  config.training.sharding.offload = offload_of(resolved.config, on_gpus, resolved.source, resolved.notices);
  settle_async_save(config, resolved.source, resolved.notices);
  const auto& zero = resolved.config.zero;
  if (!on_gpus && (zero.offload_param.device == DsDevice::kCpu || zero.offload_optimizer.device == DsDevice::kCpu)) {
    resolved.notices.push_back("offload to cpu: without a GPU all state is in CPU memory anyway");
  }
  if (!on_gpus && resolved.config.cpu_checkpointing) {
    resolved.notices.push_back(
        "activation_checkpointing.cpu_checkpointing: without a GPU activations are in CPU memory anyway");
  }
  return {.source = resolved.source,
          .table = format_table(resolved.rows),
          .record = to_json(resolved),
          .notices = resolved.notices,
          .stages = stages_of(resolved.config.zero)};
}

ShardingRequest apply_fsdp(TrainConfig& config, const RankCount& ranks) {
  const integrations::FsdpOptions fsdp = integrations::parse_fsdp(config.fsdp, config.fsdp_config);
  training::ShardingOptions sharding{.stage = training::kZeroStages.at(static_cast<size_t>(fsdp.stage))};
  if (fsdp.hybrid && fsdp.stage == 3 && ranks.per_node > 1 && ranks.per_node < ranks.world) {
    require(ranks.world % ranks.per_node == 0, ErrorKind::kUsage,
            "--fsdp hybrid_shard: {} ranks are not spread evenly over nodes of {}", ranks.world, ranks.per_node);
    sharding.stage = training::kHybrid;
    sharding.group_size = ranks.per_node;
  }
  const bool on_gpus = config.trains_on_gpus();
  require(!fsdp.offload || !on_gpus || fsdp.stage > 0, ErrorKind::kUsage,
          "--fsdp no_shard: offload, of --fsdp or --fsdp_config, needs shards, and no_shard keeps everything on every "
          "rank");
  if (fsdp.offload && on_gpus) {
    sharding.offload.optimizer_to_host = true;
    sharding.offload.parameters_to_host = sharding.stage.gathered() == training::Gathered::kForEachPass;
  }
  config.training.sharding = sharding;
  require(!fsdp.activation_checkpointing || config.training.gradient_checkpointing ||
              !config.given.contains("gradient_checkpointing"),
          ErrorKind::kUsage, "--fsdp_config: activation_checkpointing contradicts --gradient_checkpointing false");
  if (fsdp.activation_checkpointing) config.training.gradient_checkpointing = true;
  ShardingRequest request{
      .source = "--fsdp", .table = {}, .record = {}, .notices = fsdp.notices, .stages = {.by_fsdp = true}};
  if (fsdp.offload && fsdp.stage > 0) request.stages.lowest = kLowestWithFsdpOffload;
  if (fsdp.offload && !on_gpus) {
    request.notices.push_back("offload: without a GPU all state is in CPU memory anyway");
  }
  return request;
}

}  // namespace

void check_sharding_flags(const TrainConfig& config) {
  require(config.deepspeed.empty() || config.fsdp.empty(), ErrorKind::kUsage,
          "--deepspeed and --fsdp contradict each other");
  require(config.fsdp_config.empty() || !config.fsdp.empty(), ErrorKind::kUsage, "--fsdp_config needs --fsdp");
  if (!config.deepspeed.empty()) integrations::parse_ds_config(config.deepspeed);
  if (!config.fsdp.empty()) integrations::parse_fsdp(config.fsdp, config.fsdp_config);
}

ShardingRequest apply_sharding_flags(TrainConfig& config, const RunFacts& run) {
  if (!config.deepspeed.empty()) return apply_deepspeed(config, run);
  if (!config.fsdp.empty()) return apply_fsdp(config, run.ranks);
  // As in a ds_config.json that says no more than the stage, where one is recommended.
  config.training.sharding.persistence_threshold = kPersistenceThresholdOfDeepSpeed;
  return {};
}

}  // namespace strake::tasks
