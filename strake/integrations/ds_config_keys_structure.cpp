#include <array>

#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations {
namespace {

using enum ValueType;

constexpr std::string_view kNoPipeline = "there are no pipeline stages";
constexpr std::string_view kNoTensorParallel = "parameters are not cut over tensor-parallel ranks yet";
constexpr std::string_view kNoHybrid = "training and generation in one engine are not there";
constexpr std::string_view kAheadOfTime = "kernels are compiled ahead of time";
constexpr std::string_view kOffloadElsewhere = "use zero_optimization.offload_param and offload_optimizer";
constexpr std::string_view kNoSparse = "block-sparse attention is not there; attention is exact and takes no padding";

constexpr KeyRule sparse(std::string_view path, ValueType type, std::string_view fallback) {
  return accepted(path, type, fallback, kNoSparse);
}
constexpr KeyRule hybrid(std::string_view path, ValueType type, std::string_view fallback) {
  return accepted(path, type, fallback, kNoHybrid);
}
constexpr KeyRule compiled(std::string_view path, ValueType type, std::string_view fallback) {
  return accepted(path, type, fallback, kAheadOfTime);
}

constexpr std::array kStructureKeys{
    section("activation_checkpointing"),
    accepted("activation_checkpointing.partition_activations", kBool, "false", kNoTensorParallel),
    honoured("activation_checkpointing.cpu_checkpointing", kBool, "false"),
    accepted("activation_checkpointing.contiguous_memory_optimization", kBool, "false",
             "how activations are stored is up to the trainer"),
    accepted("activation_checkpointing.number_checkpoints", kInteger, "null",
             "with --gradient_checkpointing every block is one")
        .range(0),
    accepted("activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false",
             "recomputation needs no synchronization"),
    accepted("activation_checkpointing.profile", kBool, "false", "metrics.jsonl has the times"),

    section("pipeline"),
    refused("pipeline.stages", kInteger, "1", "pipeline stages are not there yet")
        .range(1)
        .on_auto(AutoMeaning::kDefault),  // "auto" is DeepSpeed's default: as many as the model brings
    accepted("pipeline.partition", kText, "\"best\"", kNoPipeline),
    accepted("pipeline.seed_layers", kBool, "false", kNoPipeline),
    accepted("pipeline.activation_checkpoint_interval", kInteger, "0", kNoPipeline).range(0),
    accepted("pipeline.pipe_partitioned", kBool, "true", kNoPipeline),
    accepted("pipeline.grad_partitioned", kBool, "true", kNoPipeline),

    section("tensor_parallel", AutoMeaning::kDefault),
    refused("tensor_parallel.autotp_size", kInteger, "0", kNoTensorParallel).range(0).allowing("1"),
    accepted("tensor_parallel.dtype", kText, "\"float16\"", kNoTensorParallel),
    accepted("tensor_parallel.preset_model", kText, "null", kNoTensorParallel),
    accepted("tensor_parallel.tp_overlap_comm", kBool, "false", kNoTensorParallel),
    section("tensor_parallel.partition_config"),
    accepted("tensor_parallel.partition_config.use_default_specs", kBool, "true", kNoTensorParallel),
    accepted("tensor_parallel.partition_config.strict_mode", kBool, "false", kNoTensorParallel),
    accepted("tensor_parallel.partition_config.tp_size", kInteger, "1", kNoTensorParallel),
    accepted("tensor_parallel.partition_config.embedding_partition_dim", kInteger, "1", kNoTensorParallel),
    accepted("tensor_parallel.partition_config.lm_head_patterns", kTextList, "null", kNoTensorParallel),
    accepted("tensor_parallel.partition_config.layer_specs", kList, "null", kNoTensorParallel),
    section("tensor_parallel.tp"),
    refused("tensor_parallel.tp.tp_size", kInteger, "1", kNoTensorParallel).range(1),
    accepted("tensor_parallel.tp.tp_grain_size", kInteger, "1", kNoTensorParallel),
    accepted("tensor_parallel.keep_module_on_host", kBool, "false", kNoTensorParallel),
    accepted("tensor_parallel.kernel_inject", kBool, "false", kAheadOfTime),
    refused("tensor_parallel.vocab_parallel_lm_head", kBool, "false", kNoTensorParallel),
    accepted("tensor_parallel.vocab_parallel_ce_backend", kText, "\"torch\"", kNoTensorParallel).one_of("torch|liger"),
    accepted("tensor_parallel.injection_policy_tuple", kList, "null", kNoTensorParallel),

    refused("expert_parallel", kSwitched, "null", "experts are not cut over ranks"),

    section("hybrid_engine", AutoMeaning::kDefault),
    refused("hybrid_engine.enabled", kBool, "false", kNoHybrid),
    hybrid("hybrid_engine.max_out_tokens", kInteger, "512"),
    hybrid("hybrid_engine.inference_tp_size", kInteger, "1"),
    hybrid("hybrid_engine.release_inference_cache", kBool, "false"),
    hybrid("hybrid_engine.pin_parameters", kBool, "true"),
    hybrid("hybrid_engine.tp_gather_partition_size", kInteger, "8"),
    hybrid("hybrid_engine.enable_cuda_graph", kBool, "false"),

    section("compile", AutoMeaning::kDefault),
    compiled("compile.deepcompile", kBool, "false"),
    compiled("compile.free_activation", kBool, "false"),
    compiled("compile.free_activation_threshold", kInteger, "10485760"),
    refused("compile.offload_activation", kBool, "false", "use activation_checkpointing.cpu_checkpointing"),
    compiled("compile.offload_activation_pin_memory", kBool, "true"),
    refused("compile.offload_opt_states", kBool, "false", kOffloadElsewhere),
    refused("compile.offload_parameters", kBool, "false", kOffloadElsewhere),
    compiled("compile.double_buffer", kBool, "true"),
    compiled("compile.symmetric_memory", kBool, "false"),
    compiled("compile.debug_log", kBool, "false"),
    compiled("compile.sync_before_reduce", kBool, "false"),
    compiled("compile.sync_after_reduce", kBool, "false"),
    compiled("compile.sync_before_allgather", kBool, "false"),
    compiled("compile.sync_after_allgather", kBool, "false"),
    compiled("compile.keep_int_input_tensors", kBool, "true"),
    compiled("compile.keep_all_input_tensors", kBool, "false"),
    compiled("compile.autoep_non_moe", kBool, "false"),
    compiled("compile.passes", kTextList, "null"),

    KeyRule{.path = "sparse_attention", .type = kSection, .status = KeyStatus::kRefused, .reason = kNoSparse},
    sparse("sparse_attention.mode", kText, "\"fixed\""),
    sparse("sparse_attention.block", kInteger, "16"),
    sparse("sparse_attention.different_layout_per_head", kBool, "false"),
    sparse("sparse_attention.num_local_blocks", kInteger, "4"),
    sparse("sparse_attention.num_global_blocks", kInteger, "1"),
    sparse("sparse_attention.attention", kText, "\"bidirectional\""),
    sparse("sparse_attention.horizontal_global_attention", kBool, "false"),
    sparse("sparse_attention.num_different_global_patterns", kInteger, "1"),
    sparse("sparse_attention.num_random_blocks", kInteger, "0"),
    sparse("sparse_attention.local_window_blocks", kIntegerList, "[4]"),
    sparse("sparse_attention.global_block_indices", kIntegerList, "[0]"),
    sparse("sparse_attention.global_block_end_indices", kIntegerList, "null"),
    sparse("sparse_attention.num_sliding_window_blocks", kInteger, "3"),

    refused("compression_training", kSwitched, "null", "quantization, pruning and distillation are not there"),
    refused("quantize_training", kSwitched, "null", "quantization while training is not there"),
    refused("weight_quantization", kObject, "null", "quantized weights are not there"),
};

}  // namespace

std::span<const KeyRule> ds_structure_keys() { return kStructureKeys; }

}  // namespace strake::integrations
