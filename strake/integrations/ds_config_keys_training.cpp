#include <array>

#include "strake/integrations/ds_config_keys.h"
#include "strake/training/options.h"

namespace strake::integrations {
namespace {

using enum ValueType;
using AutoMeaning::kFromFlags;

constexpr std::string_view kOneBit = "of the 1-bit optimizers, whose compressed communication is not there";
constexpr std::string_view kNoAutocast = "autocast chooses a precision per operation; use bf16 or fp16 here";
constexpr std::string_view kFp32States = "optimizer state is fp32 unless bf16.bf16_optimizer_states is on";
constexpr std::string_view kScaled =
    "gradients are those of the mean loss from the beginning, so their sum needs no scaling";
constexpr std::string_view kOneImplementation = "there is one implementation of each optimizer";
constexpr std::string_view kHowTorchRuns = "how torch runs the update, not what it computes";

// DtypeEnum's names.
constexpr std::string_view kFloatTypes =
    "fp32=float32=float=torch.float32|fp16=float16=half=torch.float16|bf16=bfloat16=bfloat=torch.bfloat16";

constexpr std::array kTrainingKeys{
    honoured("train_batch_size", kInteger, "null").range(1, 1e9).on_auto(kFromFlags),
    honoured("train_micro_batch_size_per_gpu", kInteger, "null").range(1, 1e9).on_auto(kFromFlags),
    honoured("gradient_accumulation_steps", kInteger, "null")
        .range(1, training::kMostAccumulationSteps)
        .on_auto(kFromFlags),
    refused("managed_gradient_accumulation", kBool, "true", "gradients are always accumulated by the trainer"),
    honoured("dataloader_drop_last", kBool, "false"),

    section("optimizer"),
    honoured("optimizer.type", kText, "null"),
    accepted("optimizer.legacy_fusion", kBool, "false", kOneImplementation),
    section("optimizer.params"),
    honoured("optimizer.params.lr", kNumber, "0.001").range(0, training::kHighestLearningRate).on_auto(kFromFlags),
    honoured("optimizer.params.betas", kNumberPair, "[0.9,0.999]").range(0, 1).on_auto(kFromFlags),
    honoured("optimizer.params.eps", kNumber, "1e-8").range(0).on_auto(kFromFlags),
    honoured("optimizer.params.weight_decay", kNumber, "0.0").range(0).on_auto(kFromFlags),
    honoured("optimizer.params.adam_w_mode", kBool, "true"),
    accepted("optimizer.params.torch_adam", kBool, "false", kOneImplementation),
    honoured("optimizer.params.bias_correction", kBool, "true"),
    honoured("optimizer.params.amsgrad", kBool, "false"),
    refused("optimizer.params.maximize", kBool, "false", "losses are minimized"),
    refused("optimizer.params.fp32_optimizer_states", kBool, "true", kFp32States),
    accepted("optimizer.params.foreach", kBool, "null", kHowTorchRuns),
    accepted("optimizer.params.fused", kBool, "null", kHowTorchRuns),
    accepted("optimizer.params.capturable", kBool, "false", kHowTorchRuns),
    accepted("optimizer.params.differentiable", kBool, "false", kHowTorchRuns),
    accepted("optimizer.params.set_grad_none", kBool, "true", "gradients are freed as soon as they are used"),
    refused("optimizer.params.freeze_step", kInteger, "null", kOneBit),
    refused("optimizer.params.cuda_aware", kBool, "null", kOneBit),
    refused("optimizer.params.comm_backend_name", kText, "null", kOneBit),
    refused("optimizer.params.coeff_beta", kNumber, "null", kOneBit),
    refused("optimizer.params.factor_max", kNumber, "null", kOneBit),
    refused("optimizer.params.factor_min", kNumber, "null", kOneBit),
    refused("optimizer.params.factor_threshold", kNumber, "null", kOneBit),
    refused("optimizer.params.var_freeze_step", kInteger, "null", kOneBit),
    refused("optimizer.params.var_update_scaler", kInteger, "null", kOneBit),
    refused("optimizer.params.local_step_scaler", kInteger, "null", kOneBit),
    refused("optimizer.params.local_step_clipper", kInteger, "null", kOneBit),
    honoured("optimizer.params.momentum", kNumber, "0.0").range(0),
    honoured("optimizer.params.dampening", kNumber, "0.0"),
    honoured("optimizer.params.nesterov", kBool, "false"),
    honoured("optimizer.params.lr_decay", kNumber, "0.0").range(0),
    honoured("optimizer.params.initial_accumulator_value", kNumber, "0.0").range(0),
    honoured("optimizer.params.max_coeff", kNumber, "10.0").range(0),
    honoured("optimizer.params.min_coeff", kNumber, "0.01").range(0),
    refused("optimizer.params.eps_inside_sqrt", kBool, "false", "LAMB adds eps to the root"),
    accepted("zero_allow_untested_optimizer", kBool, "false", "the optimizer is tested with every stage"),
    accepted("zero_force_ds_cpu_optimizer", kBool, "true", kOneImplementation),

    section("scheduler"),
    honoured("scheduler.type", kText, "null").one_of("LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR"),
    section("scheduler.params"),
    honoured("scheduler.params.lr_range_test_min_lr", kNumber, "null").range(0, training::kHighestLearningRate),
    honoured("scheduler.params.lr_range_test_step_size", kInteger, "null").range(1),
    honoured("scheduler.params.lr_range_test_step_rate", kNumber, "null").range(0, training::kHighestLearningRate),
    honoured("scheduler.params.lr_range_test_staircase", kBool, "null"),
    honoured("scheduler.params.cycle_min_lr", kNumber, "null").range(0, training::kHighestLearningRate),
    honoured("scheduler.params.cycle_max_lr", kNumber, "null").range(0, training::kHighestLearningRate),
    honoured("scheduler.params.decay_lr_rate", kNumber, "null").range(0),
    honoured("scheduler.params.cycle_first_step_size", kInteger, "null").range(1),
    honoured("scheduler.params.cycle_second_step_size", kInteger, "null").range(0),
    honoured("scheduler.params.cycle_first_stair_count", kInteger, "null").range(0),
    honoured("scheduler.params.cycle_second_stair_count", kInteger, "null").range(0),
    honoured("scheduler.params.decay_step_size", kInteger, "null").range(0),
    honoured("scheduler.params.cycle_momentum", kBool, "null"),
    honoured("scheduler.params.cycle_min_mom", kNumber, "null").range(0, 1),
    honoured("scheduler.params.cycle_max_mom", kNumber, "null").range(0, 1),
    honoured("scheduler.params.decay_mom_rate", kNumber, "null").range(0),
    honoured("scheduler.params.warmup_min_lr", kNumber, "null")
        .range(0, training::kHighestLearningRate)
        .on_auto(kFromFlags),
    honoured("scheduler.params.warmup_max_lr", kNumber, "null")
        .range(0, training::kHighestLearningRate)
        .on_auto(kFromFlags),
    honoured("scheduler.params.warmup_num_steps", kInteger, "null").range(1).on_auto(kFromFlags),
    honoured("scheduler.params.warmup_type", kText, "null").one_of("log|linear"),
    honoured("scheduler.params.total_num_steps", kInteger, "null").range(1).on_auto(kFromFlags),
    honoured("scheduler.params.warmup_min_ratio", kNumber, "null").range(0, 1),
    honoured("scheduler.params.cos_min_ratio", kNumber, "null").range(0, 1),

    section("fp16", AutoMeaning::kDefault),
    honoured("fp16.enabled", kBool, "false").on_auto(kFromFlags),
    accepted("fp16.auto_cast", kBool, "false", "the inputs are token numbers, which have no floating-point type"),
    honoured("fp16.loss_scale", kNumber, "0").range(0, 1e38),
    honoured("fp16.initial_scale_power", kInteger, "16").range(0, 64),
    honoured("fp16.loss_scale_window", kInteger, "1000").range(1),
    honoured("fp16.hysteresis", kInteger, "2").range(1),
    honoured("fp16.consecutive_hysteresis", kBool, "false"),
    honoured("fp16.min_loss_scale", kNumber, "1").range(1),
    honoured("fp16.fp16_master_weights_and_grads", kBool, "false"),

    section("bf16", AutoMeaning::kDefault),
    honoured("bf16.enabled", kBool, "false").on_auto(kFromFlags),
    accepted("bf16.immediate_grad_update", kBool, "false", "gradients are added up as soon as they are there"),
    noticed("bf16.check_grad_overflow", kBool, "true", "a gradient that is not finite always ends the run"),
    honoured("bf16.bf16_master_weights_and_grads", kBool, "false"),
    honoured("bf16.bf16_optimizer_states", kBool, "false"),

    refused("amp", kSwitched, "null", "Apex is not there; use bf16 or fp16"),
    section("torch_autocast"),
    refused("torch_autocast.enabled", kBool, "false", kNoAutocast),
    accepted("torch_autocast.dtype", kText, "\"bfloat16\"", kNoAutocast),
    accepted("torch_autocast.lower_precision_safe_modules", kTextList, "null", kNoAutocast),

    section("data_types"),
    honoured("data_types.grad_accum_dtype", kText, "null").one_of(kFloatTypes),
    honoured("data_types.param_dtype", kText, "null").one_of(kFloatTypes),
    accepted("data_types.buffer_dtype", kText, "null", "models have no buffers that training changes"),

    honoured("gradient_clipping", kNumber, "1.0").range(0).on_auto(kFromFlags),
    honoured("communication_data_type", kText, "null").one_of(kFloatTypes),
    accepted("seq_parallel_communication_data_type", kText, "\"fp32\"", "sequences are not cut over ranks")
        .one_of(kFloatTypes),
    accepted("prescale_gradients", kBool, "false", kScaled),
    accepted("gradient_predivide_factor", kNumber, "1.0", kScaled).range(1e-30),
    refused("gradient_allreduce_op", kText, "\"mean\"",
            "gradients are of the mean loss; multiply the learning rate instead")
        .one_of("mean|sum"),
    accepted("sparse_gradients", kBool, "false", "gradients of embeddings are reduced whole, with the same result"),
    accepted("disable_allgather", kBool, "false", "how parameters are gathered follows from the stage"),
    accepted("graph_harvesting", kBool, "false", "there are no CUDA graphs to harvest"),
    accepted("use_data_before_expert_parallelism", kBool, "false", "there are no expert-parallel ranks"),
    refused("sequence_parallel_size", kInteger, "1", "sequences are not cut over ranks yet").range(1),
    refused("data_parallel_size", kInteger, "null", "it follows from the number of ranks; leave it out").range(1),
};

}  // namespace

std::span<const KeyRule> ds_training_keys() { return kTrainingKeys; }

}  // namespace strake::integrations
