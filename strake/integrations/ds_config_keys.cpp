#include "strake/integrations/ds_config_keys.h"

#include <array>

namespace strake::integrations {
namespace {

constexpr std::string_view kOldName = "an old name, which DeepSpeed calls deprecated";

constexpr std::array kAliases{
    KeyAlias{"bfloat16", "bf16", kOldName},
    KeyAlias{"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size", ""},
    KeyAlias{"zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold",
             ""},
    KeyAlias{"zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold",
             ""},
    KeyAlias{"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters", ""},
    KeyAlias{"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance", ""},
    KeyAlias{"zero_optimization.gather_16bit_weights_on_model_save",
             "zero_optimization.stage3_gather_16bit_weights_on_model_save", ""},
    KeyAlias{"zero_optimization.stage3_gather_fp16_weights_on_model_save",
             "zero_optimization.stage3_gather_16bit_weights_on_model_save", kOldName},
    KeyAlias{"zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold",
             ""},
    KeyAlias{"zero_optimization.use_all_reduce_for_fetch_params",
             "zero_optimization.stage3_use_all_reduce_for_fetch_params", ""},
    KeyAlias{"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential", ""},
    KeyAlias{"tensor_parallel.tensor_parallel", "tensor_parallel.tp", ""},
    KeyAlias{"tensor_parallel.replace_with_kernel_inject", "tensor_parallel.kernel_inject", ""},
    KeyAlias{"elasticity.prefer_large_batch", "elasticity.prefer_larger_batch", ""},
    KeyAlias{"nebula.load_path", "nebula.nebula_load_path", ""},
};

constexpr std::string_view kOfAccelerate = "it belongs to Accelerate's own configuration; leave it out";

constexpr std::string_view kOfTorchCompile = "it is for torch.compile, which is not needed here; leave it out";

constexpr std::array kHints{
    KeyHint{"micro_batch_size_per_gpu", "the key is 'train_micro_batch_size_per_gpu'"},
    KeyHint{"per_device_train_batch_size", "the key is 'train_micro_batch_size_per_gpu'"},
    KeyHint{"batch_size", "the key is 'train_batch_size' or 'train_micro_batch_size_per_gpu'"},
    KeyHint{"max_grad_norm", "the key is 'gradient_clipping'"},
    KeyHint{"optimizer.params.max_grad_norm", "DeepSpeed does not take it here either; use 'gradient_clipping'"},
    KeyHint{"learning_rate", "the key is 'optimizer.params.lr'"},
    KeyHint{"optimizer.params.learning_rate", "the key is 'optimizer.params.lr'"},
    KeyHint{"zero_stage", "it is Accelerate's name of 'zero_optimization.stage'"},
    KeyHint{"offload_optimizer_device", "it is Accelerate's name of 'zero_optimization.offload_optimizer.device'"},
    KeyHint{"offload_param_device", "it is Accelerate's name of 'zero_optimization.offload_param.device'"},
    KeyHint{"offload_optimizer_nvme_path",
            "it is Accelerate's name of 'zero_optimization.offload_optimizer.nvme_path'"},
    KeyHint{"offload_param_nvme_path", "it is Accelerate's name of 'zero_optimization.offload_param.nvme_path'"},
    KeyHint{"zero3_save_16bit_model",
            "it is Accelerate's name of 'zero_optimization.stage3_gather_16bit_weights_on_model_save'"},
    KeyHint{"zero3_init_flag", kOfAccelerate},
    KeyHint{"deepspeed_multinode_launcher", kOfAccelerate},
    KeyHint{"deepspeed_config_file", kOfAccelerate},
    KeyHint{"zero_optimization.cpu_offload_params", "the key is 'zero_optimization.offload_param.device'"},
    KeyHint{"bf16.check_overflow", "the key is 'bf16.check_grad_overflow'"},
    KeyHint{"bf16.loss_scale", "bfloat16 needs no loss scaling; leave it out"},
    KeyHint{"comms_config", "DeepSpeed does not read it either; its key is 'comms_logger'"},
    KeyHint{"monitor_config",
            "DeepSpeed does not read it either; its keys are 'tensorboard', 'wandb' and 'csv_monitor'"},
    KeyHint{"cuda_visible_devices", "DeepSpeed does not read it either; CUDA_VISIBLE_DEVICES is of the environment"},
    KeyHint{"compile.enabled", "the key is 'compile.deepcompile'"},
    KeyHint{"compile.disable", kOfTorchCompile},
    KeyHint{"compile.backend", kOfTorchCompile},
    KeyHint{"compile.kwargs", kOfTorchCompile},
};

constexpr std::array kScheduleParameters{
    DsScheduleParameter{"LRRangeTest", "lr_range_test_min_lr", "0.001"},
    DsScheduleParameter{"LRRangeTest", "lr_range_test_step_size", "2000"},
    DsScheduleParameter{"LRRangeTest", "lr_range_test_step_rate", "1.0"},
    DsScheduleParameter{"LRRangeTest", "lr_range_test_staircase", "false"},
    DsScheduleParameter{"OneCycle", "cycle_min_lr", "required"},
    DsScheduleParameter{"OneCycle", "cycle_max_lr", "required"},
    DsScheduleParameter{"OneCycle", "decay_lr_rate", "0.0"},
    DsScheduleParameter{"OneCycle", "cycle_first_step_size", "2000"},
    DsScheduleParameter{"OneCycle", "cycle_second_step_size", "null"},
    DsScheduleParameter{"OneCycle", "cycle_first_stair_count", "0"},
    DsScheduleParameter{"OneCycle", "cycle_second_stair_count", "null"},
    DsScheduleParameter{"OneCycle", "decay_step_size", "0"},
    DsScheduleParameter{"OneCycle", "cycle_momentum", "true"},
    DsScheduleParameter{"OneCycle", "cycle_min_mom", "0.8"},
    DsScheduleParameter{"OneCycle", "cycle_max_mom", "0.9"},
    DsScheduleParameter{"OneCycle", "decay_mom_rate", "0.0"},
    DsScheduleParameter{"WarmupLR", "warmup_min_lr", "0.0"},
    DsScheduleParameter{"WarmupLR", "warmup_max_lr", "null"},  // the optimizer's lr
    DsScheduleParameter{"WarmupLR", "warmup_num_steps", "1000"},
    DsScheduleParameter{"WarmupLR", "warmup_type", "\"log\""},
    DsScheduleParameter{"WarmupDecayLR", "total_num_steps", "required"},
    DsScheduleParameter{"WarmupDecayLR", "warmup_min_lr", "0.0"},
    DsScheduleParameter{"WarmupDecayLR", "warmup_max_lr", "0.001"},
    DsScheduleParameter{"WarmupDecayLR", "warmup_num_steps", "1000"},
    DsScheduleParameter{"WarmupDecayLR", "warmup_type", "\"log\""},
    DsScheduleParameter{"WarmupCosineLR", "total_num_steps", "required"},
    DsScheduleParameter{"WarmupCosineLR", "warmup_min_ratio", "0.0"},
    DsScheduleParameter{"WarmupCosineLR", "warmup_num_steps", "1000"},
    DsScheduleParameter{"WarmupCosineLR", "cos_min_ratio", "0.0001"},
    DsScheduleParameter{"WarmupCosineLR", "warmup_type", "\"log\""},
};

constexpr std::array kOptimizerParameters{
    DsOptimizerParameter{"Adam", "lr", "0.001"},
    DsOptimizerParameter{"Adam", "betas", "[0.9,0.999]"},
    DsOptimizerParameter{"Adam", "eps", "1e-8"},
    DsOptimizerParameter{"Adam", "weight_decay", "0.0"},
    DsOptimizerParameter{"Adam", "bias_correction", "true"},
    DsOptimizerParameter{"Adam", "adam_w_mode", "true"},
    DsOptimizerParameter{"Adam", "amsgrad", "false"},
    DsOptimizerParameter{"AdamW", "lr", "0.001"},
    DsOptimizerParameter{"AdamW", "betas", "[0.9,0.999]"},
    DsOptimizerParameter{"AdamW", "eps", "1e-8"},
    DsOptimizerParameter{"AdamW", "weight_decay", "0.0"},
    DsOptimizerParameter{"AdamW", "bias_correction", "true"},
    DsOptimizerParameter{"AdamW", "adam_w_mode", "true"},
    DsOptimizerParameter{"AdamW", "amsgrad", "false"},
    DsOptimizerParameter{"Adagrad", "lr", "0.01"},
    DsOptimizerParameter{"Adagrad", "eps", "1e-10"},
    DsOptimizerParameter{"Adagrad", "weight_decay", "0.0"},
    DsOptimizerParameter{"Adagrad", "lr_decay", "0.0"},
    DsOptimizerParameter{"Adagrad", "initial_accumulator_value", "0.0"},
    DsOptimizerParameter{"Adagrad", "amsgrad", "false"},
    DsOptimizerParameter{"Lamb", "lr", "0.001"},
    DsOptimizerParameter{"Lamb", "betas", "[0.9,0.999]"},
    DsOptimizerParameter{"Lamb", "eps", "1e-8"},
    DsOptimizerParameter{"Lamb", "weight_decay", "0.0"},
    DsOptimizerParameter{"Lamb", "bias_correction", "true"},
    DsOptimizerParameter{"Lamb", "max_coeff", "10.0"},
    DsOptimizerParameter{"Lamb", "min_coeff", "0.01"},
    DsOptimizerParameter{"Lamb", "amsgrad", "false"},
    DsOptimizerParameter{"Lion", "lr", "0.001"},
    DsOptimizerParameter{"Lion", "betas", "[0.9,0.999]"},
    DsOptimizerParameter{"Lion", "weight_decay", "0.0"},
    DsOptimizerParameter{"SGD", "lr", "0.001"},
    DsOptimizerParameter{"SGD", "momentum", "0.0"},
    DsOptimizerParameter{"SGD", "dampening", "0.0"},
    DsOptimizerParameter{"SGD", "weight_decay", "0.0"},
    DsOptimizerParameter{"SGD", "nesterov", "false"},
};

Schema make_schema() {
  Schema schema{.aliases = {kAliases.begin(), kAliases.end()}, .hints = {kHints.begin(), kHints.end()}};
  for (const auto part : {ds_training_keys(), ds_zero_keys(), ds_structure_keys(), ds_lifecycle_keys()})
    schema.rules.insert(schema.rules.end(), part.begin(), part.end());
  return schema;
}

}  // namespace

const Schema& ds_schema() {
  static const Schema schema = make_schema();
  return schema;
}

std::span<const DsOptimizerParameter> ds_optimizer_parameters() { return kOptimizerParameters; }

std::span<const DsScheduleParameter> ds_schedule_parameters() { return kScheduleParameters; }

}  // namespace strake::integrations
