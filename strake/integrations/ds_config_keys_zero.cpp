#include <array>

#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations {
namespace {

using enum ValueType;
using AutoMeaning::kFromFlags;

constexpr std::string_view kZero1 = "there is one implementation of stage 1";
constexpr std::string_view kOneOrder = "the order of communication is fixed by the schedule, the result is the same";
constexpr std::string_view kBlocks = "parameters are gathered block by block, each whole";
constexpr std::string_view kBlockByBlock = "communication goes block by block, whatever its size";
constexpr std::string_view kOneAhead = "the block at work and the next one are gathered, whatever their size";
constexpr std::string_view kPipelined = "reads and writes always go on beside the updates";
constexpr std::string_view kQuantized = "quantized communication (ZeRO++) is not there";
constexpr std::string_view kNoModules = "there are no Python modules to patch";
constexpr std::string_view kZenFlow = "ZenFlow's late updates of unimportant gradients are not there";
constexpr std::string_view kDeviceChoices = "none|cpu|nvme";

constexpr std::array kZeroKeys{
    section("zero_optimization", AutoMeaning::kDefault),
    honoured("zero_optimization.stage", kInteger, "0").range(0, 3),
    accepted("zero_optimization.contiguous_gradients", kBool, "true", "gradients always have one buffer per block"),
    accepted("zero_optimization.reduce_scatter", kBool, "true", kOneOrder),
    accepted("zero_optimization.allgather_partitions", kBool, "true", kOneOrder),
    accepted("zero_optimization.reduce_bucket_size", kInteger, "500000000", kBlockByBlock).range(0),
    accepted("zero_optimization.allgather_bucket_size", kInteger, "500000000", kBlockByBlock).range(0),
    accepted("zero_optimization.use_multi_rank_bucket_allreduce", kBool, "true", kOneOrder),
    accepted("zero_optimization.overlap_comm", kBool, "null",
             "communication goes on beside computation in every stage"),
    accepted("zero_optimization.load_from_fp32_weights", kBool, "true", "checkpoints always hold the fp32 weights"),
    accepted("zero_optimization.elastic_checkpoint", kBool, "false",
             "every checkpoint can be loaded at any number of ranks"),
    honoured("zero_optimization.sub_group_size", kInteger, "1000000000").range(0),
    accepted("zero_optimization.stage3_prefetch_bucket_size", kInteger, "50000000", kOneAhead).range(0),
    honoured("zero_optimization.stage3_param_persistence_threshold", kInteger, "100000").range(0).on_auto(kFromFlags),
    honoured("zero_optimization.stage3_model_persistence_threshold", kInteger, "9223372036854775807").range(0),
    accepted("zero_optimization.stage3_max_live_parameters", kInteger, "1000000000", kOneAhead).range(0),
    accepted("zero_optimization.stage3_max_reuse_distance", kInteger, "1000000000",
             "the schedule knows when a block is used next")
        .range(0),
    accepted("zero_optimization.stage3_gather_16bit_weights_on_model_save", kBool, "false",
             "a saved model is always complete, in fp32"),
    accepted("zero_optimization.stage3_module_granularity_threshold", kInteger, "0", kBlocks),
    accepted("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBool, "false", kOneOrder),
    accepted("zero_optimization.stage3_allgather_sequential", kBool, "false", kOneOrder),
    accepted("zero_optimization.ignore_unused_parameters", kBool, "true", "every parameter of a model is used"),
    accepted("zero_optimization.parameter_alignment", kBool, "false", "every shard begins on a cache line"),
    accepted("zero_optimization.compute_grad_norm", kBool, "true", "the norm of each step is in metrics.jsonl"),
    accepted("zero_optimization.legacy_stage1", kBool, "false", kZero1),
    accepted("zero_optimization.round_robin_gradients", kBool, "false", kOneOrder),
    honoured("zero_optimization.zero_hpz_partition_size", kInteger, "1").range(0),
    refused("zero_optimization.zero_quantized_weights", kBool, "false", kQuantized),
    refused("zero_optimization.zero_quantized_nontrainable_weights", kBool, "false", kQuantized),
    refused("zero_optimization.zero_quantized_gradients", kBool, "false", kQuantized),
    refused("zero_optimization.zeropp_loco_param", kObject, "null", kQuantized),
    honoured("zero_optimization.mics_shard_size", kInteger, "-1").range(-1),
    accepted("zero_optimization.mics_hierarchical_params_gather", kBool, "false", kOneOrder),
    accepted("zero_optimization.memory_efficient_linear", kBool, "true",
             "a projection keeps only its input for the backward pass"),
    accepted("zero_optimization.override_module_apply", kBool, "true", kNoModules),
    accepted("zero_optimization.pipeline_loading_checkpoint", kBool, "false", "there are no pipeline stages"),
    accepted("zero_optimization.log_trace_cache_warnings", kBool, "false", "the schedule is known, not traced"),
    accepted("zero_optimization.enable_sanity_checks", kBool, "false", "layouts are always checked"),
    accepted("zero_optimization.save_muon_momentum_buffer_in_memory", kBool, "false", "there is no Muon"),
    accepted("zero_optimization.grad_hooks", kBool, "true", kNoModules),
    section("zero_optimization.leaf_module"),
    accepted("zero_optimization.leaf_module.classes", kTextList, "null", kBlocks),
    accepted("zero_optimization.leaf_module.names", kTextList, "null", kBlocks),
    accepted("zero_optimization.leaf_module.name_suffixes", kTextList, "null", kBlocks),

    section("zero_optimization.offload_param"),
    honoured("zero_optimization.offload_param.device", kText, "\"none\"").one_of(kDeviceChoices),
    honoured("zero_optimization.offload_param.nvme_path", kText, "null"),
    accepted("zero_optimization.offload_param.buffer_count", kInteger, "5", kOneAhead).range(0),
    accepted("zero_optimization.offload_param.buffer_size", kInteger, "100000000", kBlocks).range(0),
    accepted("zero_optimization.offload_param.max_in_cpu", kInteger, "1000000000", kOneAhead).range(0),
    honoured("zero_optimization.offload_param.pin_memory", kBool, "true"),
    section("zero_optimization.offload_optimizer"),
    honoured("zero_optimization.offload_optimizer.device", kText, "\"none\"").one_of(kDeviceChoices),
    honoured("zero_optimization.offload_optimizer.nvme_path", kText, "null"),
    honoured("zero_optimization.offload_optimizer.buffer_count", kInteger, "4").range(0),
    honoured("zero_optimization.offload_optimizer.pin_memory", kBool, "true"),
    accepted("zero_optimization.offload_optimizer.pipeline_read", kBool, "false", kPipelined),
    accepted("zero_optimization.offload_optimizer.pipeline_write", kBool, "false", kPipelined),
    accepted("zero_optimization.offload_optimizer.fast_init", kBool, "false", "there is one way to set up the state"),
    honoured("zero_optimization.offload_optimizer.ratio", kNumber, "1.0").range(0, 1),
    refused("zero_optimization.offload_optimizer.super_offload", kBool, "false",
            "speculative updates (SuperOffload) are not there"),
    accepted("zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber, "0.8", "of SuperOffload").range(0, 1),

    KeyRule{.path = "zero_optimization.zenflow", .type = kSection, .status = KeyStatus::kRefused, .reason = kZenFlow},
    accepted("zero_optimization.zenflow.topk_ratio", kNumber, "0.1", kZenFlow).range(0, 1),
    accepted("zero_optimization.zenflow.select_strategy", kText, "\"auto\"", kZenFlow).one_of("auto|step|epoch"),
    accepted("zero_optimization.zenflow.select_interval", kInteger, "null", kZenFlow),
    accepted("zero_optimization.zenflow.update_interval", kInteger, "null", kZenFlow),
    accepted("zero_optimization.zenflow.overlap_step", kBool, "false", kZenFlow),
    accepted("zero_optimization.zenflow.offload", kBool, "false", kZenFlow),
    accepted("zero_optimization.zenflow.auto_ratio", kNumber, "0.99", kZenFlow).range(0, 1),
    accepted("zero_optimization.zenflow.full_warm_up_rounds", kInteger, "0", kZenFlow),
    accepted("zero_optimization.zenflow.pt_reserved_cores_perc", kNumber, "0.5", kZenFlow).range(0, 1),

    accepted("zero_optimization.cpu_offload", kBool, "null", "becomes offload_optimizer.device"),
    accepted("zero_optimization.cpu_offload_param", kBool, "null", "becomes offload_param.device"),
    noticed("zero_optimization.cpu_offload_use_pin_memory", kBool, "null",
            "deprecated and without effect in DeepSpeed too; use pin_memory in offload_param and offload_optimizer"),
    noticed("allgather_size", kInteger, "null",
            "deprecated; it counts only beside \"zero_optimization\": true, use "
            "zero_optimization.allgather_bucket_size")
        .range(0),

    section("aio"),
    honoured("aio.block_size", kInteger, "1048576").range(1),
    honoured("aio.queue_depth", kInteger, "8").range(1),
    accepted("aio.intra_op_parallelism", kInteger, "1", "queue_depth decides how many requests run at once").range(1),
    accepted("aio.single_submit", kBool, "false", "each request is handed over as soon as it is known"),
    accepted("aio.overlap_events", kBool, "true", kPipelined),
    refused("aio.use_gds", kBool, "false", "GPUDirect Storage is not there"),
    noticed("aio.thread_count", kInteger, "null", "DeepSpeed ignores it too since it is called intra_op_parallelism"),
};

}  // namespace

std::span<const KeyRule> ds_zero_keys() { return kZeroKeys; }

}  // namespace strake::integrations
