
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/integrations/resolved_config.h"

namespace strake::integrations::ds_config_resolve_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kDecay = R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
  "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})";

TEST(ResolveDsConfig, LeavesTheScheduleOpenUntilTheStepsAreKnown) {
  const ResolvedDsConfig open = resolved(kDecay, {.options = {.warmup_ratio = 0.5}});
  EXPECT_TRUE(open.config.scheduler->params.at("total_num_steps").is_null());
  EXPECT_TRUE(open.config.scheduler->params.at("warmup_num_steps").is_null());
  const ResolvedDsConfig known = resolved(kDecay, {.options = {.warmup_ratio = 0.5}, .total_steps = 9});
  EXPECT_EQ(known.config.scheduler->params.at("warmup_num_steps"), 5);
  EXPECT_EQ(resolved(kDecay, {.options = {}}).config.scheduler->params.at("warmup_num_steps"), 1);
}

TEST(ResolveDsConfig, GivenFlagsDecideWhatTheScheduleLeavesOut) {
  const std::string file = R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 20}}})";
  const Json defaults = resolved(file, {.options = {}}).config.scheduler->params;
  EXPECT_EQ(defaults.at("warmup_num_steps"), 1000);
  EXPECT_EQ(defaults.at("warmup_max_lr"), 0.001);
  const ResolvedDsConfig flags = resolved(file, {.options = {.learning_rate = 3e-4, .warmup_ratio = 0.25},
                                                 .given_flags = {"learning_rate", "warmup_ratio"},
                                                 .total_steps = 20});
  EXPECT_EQ(flags.config.scheduler->params.at("warmup_num_steps"), 5);
  EXPECT_EQ(flags.config.scheduler->params.at("warmup_max_lr"), 3e-4);
  EXPECT_EQ(row(flags, "scheduler.params.warmup_max_lr").origin, "--learning_rate");
}

TEST(ResolveDsConfig, RefusesAWarmUpThatTheFlagsContradict) {
  const std::string file = R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}})";
  const auto refused = [&](const training::TrainingOptions& options, const char* flag) {
    return refusal(file, {.options = options, .given_flags = {flag}, .total_steps = 20});
  };
  EXPECT_THAT(refused({.warmup_ratio = 0.25}, "warmup_ratio"), HasSubstr("warmup_num_steps=10 vs --warmup_ratio=0.25"));
  EXPECT_THAT(refused({.warmup_steps = 0}, "warmup_steps"), HasSubstr("warmup_num_steps=10 vs --warmup_steps=0"));
  EXPECT_EQ(refused({.warmup_ratio = 0.5}, "warmup_ratio"), "accepted");
  EXPECT_EQ(refused({.warmup_steps = 10}, "warmup_steps"), "accepted");
}

TEST(ResolveDsConfig, APeakThatIsAutoIsTheFlagsUnlessTheFileHasOne) {
  const std::string schedule = R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}})";
  const auto peak = [&](const std::string& optimizer) {
    return resolved("{" + optimizer + schedule + "}", {.options = {}}).config.scheduler->params.at("warmup_max_lr");
  };
  EXPECT_EQ(peak(""), 5e-5);
  EXPECT_EQ(peak(R"("optimizer": {"type": "AdamW"}, )"), 5e-5);  // not DeepSpeed's default for the optimizer
  EXPECT_EQ(peak(R"("optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}, )"), 3e-5);
}

TEST(ResolveDsConfig, BatchesOfTokensHaveNoNumberOfSequences) {
  const auto with = [](const std::string& file) { return refusal(file, {.options = {.max_tokens_per_batch = 512}}); };
  EXPECT_THAT(with(R"({"train_batch_size": 16})"),
              HasSubstr("train_batch_size=16 contradicts --max_tokens_per_batch 512"));
  EXPECT_THAT(with(R"({"train_micro_batch_size_per_gpu": 2})"), HasSubstr("train_micro_batch_size_per_gpu=2 contra"));
  EXPECT_EQ(with(R"({"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"})"), "accepted");
  const ResolvedDsConfig accumulated =
      resolved(R"({"gradient_accumulation_steps": 3})", {.options = {.max_tokens_per_batch = 512}});
  EXPECT_EQ(accumulated.config.gradient_accumulation_steps, 3);
  EXPECT_EQ(row(accumulated, "train_batch_size").origin, "no effect: --max_tokens_per_batch");
}

TEST(ResolveDsConfig, ABatchThatIsAutoGivesWayToAFlag) {
  const std::string file = R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": "auto",
                               "gradient_accumulation_steps": "auto"})";
  const ResolvedDsConfig given = resolved(
      file,
      {.options = {.gradient_accumulation_steps = 3}, .given_flags = {"gradient_accumulation_steps"}, .world_size = 2});
  EXPECT_EQ(given.config.train_micro_batch_size_per_gpu, 2);
  EXPECT_EQ(given.config.gradient_accumulation_steps, 3);
  const ResolvedDsConfig open = resolved(file, {.options = {.per_device_train_batch_size = 2}, .world_size = 2});
  EXPECT_EQ(open.config.train_micro_batch_size_per_gpu, 2);
  EXPECT_EQ(open.config.gradient_accumulation_steps, 3);
}

struct BatchCase {
  std::string config;
  int64_t micro;
  int64_t accumulation;
  int64_t total;
};

TEST(ResolveDsConfig, DerivesTheThirdBatchNumberFromTheOtherTwo) {
  const std::vector<BatchCase> cases{
      {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", 4, 4, 64},
      {R"({"train_batch_size": 64, "gradient_accumulation_steps": 2})", 8, 2, 64},
      {R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})", 4, 2, 32},
      {R"({"train_batch_size": 64})", 16, 1, 64},
      {R"({"train_micro_batch_size_per_gpu": 5})", 5, 1, 20},
      {R"({})", 8, 1, 32},
      {R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 3})", 8, 3, 96},
      {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})",
       8, 2, 64},
      {R"({"train_batch_size": 64, "gradient_accumulation_steps": "auto"})", 16, 1, 64},
      {R"({"train_batch_size": "auto", "gradient_accumulation_steps": 2})", 8, 2, 64},
  };
  for (const auto& [text, micro, accumulation, total] : cases) {
    const DsConfig config = resolved(text, {.options = {}, .world_size = 4}).config;
    EXPECT_EQ(config.train_micro_batch_size_per_gpu, micro) << text;
    EXPECT_EQ(config.gradient_accumulation_steps, accumulation) << text;
    EXPECT_EQ(config.train_batch_size, total) << text;
  }
}

TEST(ResolveDsConfig, HasARowForEveryAuto) {
  const ResolvedDsConfig config = resolved(R"({"steps_per_print": "auto", "zero_optimization": {"stage": "auto",
      "sub_group_size": "auto", "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}})",
                                           {.options = {}, .hidden_size = 100});
  EXPECT_EQ(row(config, "zero_optimization.stage").value, 0);
  EXPECT_EQ(row(config, "zero_optimization.stage").origin, "auto <- default");
  EXPECT_EQ(row(config, "zero_optimization.sub_group_size").value, 1000000000);
  EXPECT_EQ(row(config, "zero_optimization.reduce_bucket_size").value, 10000);
  EXPECT_EQ(row(config, "zero_optimization.stage3_prefetch_bucket_size").value, 9000);
  for (const char* key : {"steps_per_print", "zero_optimization.reduce_bucket_size"})
    EXPECT_THAT(row(config, key).origin, HasSubstr("auto, no effect: ")) << key;
}

TEST(ResolveDsConfig, RefusesBatchNumbersThatDoNotFit) {
  EXPECT_THAT(refusal(R"({"gradient_accumulation_steps": 4})"), HasSubstr("alone does not say how large a batch is"));
  EXPECT_EQ(
      refusal(R"({"gradient_accumulation_steps": 4})", {.options = {}, .given_flags = {"per_device_train_batch_size"}}),
      "accepted");
  EXPECT_THAT(refusal(R"({"train_batch_size": 6, "train_micro_batch_size_per_gpu": 4})"),
              HasSubstr("train_batch_size=6 is not a multiple of train_micro_batch_size_per_gpu=4 * 1 ranks"));
  EXPECT_THAT(refusal(R"({"train_batch_size": 6})", {.options = {}, .world_size = 4}),
              HasSubstr("not a multiple of gradient_accumulation_steps=1 * 4 ranks"));
  EXPECT_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 1e9, "gradient_accumulation_steps": 1e6})",
                      {.options = {}, .world_size = 2}),
              HasSubstr("is out of range"));
  EXPECT_THAT(refusal("{}", {.options = {.per_device_train_batch_size = 0}}), HasSubstr("must be positive"));
}

TEST(ResolveDsConfig, ListsEveryContradictionToAFlagThatWasGiven) {
  const std::string config = R"({"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.5, "bf16": {"enabled": false},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_max_lr": 1e-4}}})";
  const training::TrainingOptions options{.per_device_train_batch_size = 8,
                                          .max_steps = 50,
                                          .learning_rate = 2e-4,
                                          .adam_beta2 = 0.98,
                                          .lr_scheduler_type = "cosine",
                                          .bf16 = true};
  const std::string text = refusal(config, {.options = options,
                                            .given_flags = {"per_device_train_batch_size", "learning_rate",
                                                            "adam_beta2", "bf16", "lr_scheduler_type", "max_steps"}});
  EXPECT_THAT(text, HasSubstr("7 problems:"));
  EXPECT_THAT(text, HasSubstr("- ds train_micro_batch_size_per_gpu=16 vs --per_device_train_batch_size=8\n"));
  EXPECT_THAT(text, HasSubstr("- ds bf16.enabled=false vs --bf16=true\n"));
  EXPECT_THAT(text, HasSubstr("- ds optimizer.params.lr=0.0001 vs --learning_rate=0.0002\n"));
  EXPECT_THAT(text, HasSubstr("- ds optimizer.params.betas=[0.9,0.95] vs --adam_beta1, --adam_beta2=[0.9,0.98]\n"));
  EXPECT_THAT(text, HasSubstr("- ds scheduler.type=\"WarmupDecayLR\" vs --lr_scheduler_type=\"cosine\"\n"));
  EXPECT_THAT(text, HasSubstr("- ds scheduler.params.warmup_max_lr=0.0001 vs --learning_rate=0.0002"));
  EXPECT_THAT(text, HasSubstr("- ds scheduler.params.total_num_steps=100 vs --max_steps=50"));
  EXPECT_THAT(text, HasSubstr("leave these flags out, or write \"auto\" in the file"));
  // The same values as defaults that nobody typed give way to the file.
  const DsConfig resolved_config = resolved(config, {.options = options}).config;
  EXPECT_EQ(resolved_config.train_micro_batch_size_per_gpu, 16);
  EXPECT_EQ(resolved_config.optimizer->learning_rate, 1e-4);
}

TEST(ResolveDsConfig, UsesDeepSpeedsDefaultsForAnOptimizerThatSaysLittle) {
  const std::string config =
      R"({"train_batch_size": 8, "optimizer": {"type": "adam", "params": {"betas": [0.5, 0.9]}}})";
  const training::TrainingOptions options{.learning_rate = 3e-5, .weight_decay = 0.2};
  const DsOptimizer optimizer =
      *resolved(config, {.options = options, .given_flags = {"weight_decay"}}).config.optimizer;
  EXPECT_EQ(optimizer.type, "Adam");
  EXPECT_EQ(optimizer.learning_rate, 1e-3);  // FusedAdam's
  EXPECT_EQ(optimizer.settings.weight_decay, kernels::WeightDecay::kDecoupled);
  EXPECT_EQ(optimizer.settings.betas.first, 0.5);
  EXPECT_EQ(optimizer.settings.epsilon, 1e-8);
  EXPECT_EQ(optimizer.weight_decay, 0.2);
}

TEST(ResolveDsConfig, HonoursEveryOptimizerWithItsOwnParametersAndDefaults) {
  using optim::OptimizerRule;
  const auto optimizer = [](const std::string& json) {
    training::TrainingOptions options{.learning_rate = 3e-5, .adam_beta1 = 0.7, .adam_epsilon = 1e-3};
    apply(resolved(R"({"optimizer": )" + json + "}", {.options = options}).config, options);
    EXPECT_EQ(options.optimizer_settings().rule, optim::optimizer_settings({.name = options.optim}).rule);
    return options;
  };
  training::TrainingOptions options = optimizer(R"({"type": "sgd", "params": {"momentum": 0.9, "nesterov": true}})");
  EXPECT_EQ(options.optim, "sgd");
  EXPECT_EQ(options.learning_rate, 1e-3);
  EXPECT_EQ(options.optimizer_settings().momentum, 0.9);
  EXPECT_TRUE(options.optimizer_settings().nesterov);
  options = optimizer(R"({"type": "Adagrad", "params": {"initial_accumulator_value": 0.1}})");
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.optimizer_settings().epsilon, 1e-10);
  EXPECT_EQ(options.optimizer_settings().initial_accumulator_value, 0.1);
  options = optimizer(R"({"type": "Lion", "params": {"lr": "auto", "betas": "auto", "weight_decay": 0.3}})");
  EXPECT_EQ(options.learning_rate, 3e-5);
  EXPECT_EQ(options.optimizer_settings().betas.first, 0.7);
  EXPECT_EQ(options.weight_decay, 0.3);
  options = optimizer(R"({"type": "Lamb", "params": {"max_coeff": 5, "bias_correction": false, "eps": "auto"}})");
  EXPECT_EQ(options.optimizer_settings().max_coefficient, 5);
  EXPECT_EQ(options.optimizer_settings().min_coefficient, 0.01);
  EXPECT_EQ(options.optimizer_settings().epsilon, 1e-3);
  EXPECT_FALSE(options.optimizer_settings().bias_correction);
  options = optimizer(R"({"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}})");
  EXPECT_EQ(options.optimizer_settings().weight_decay, kernels::WeightDecay::kInGradient);
  EXPECT_EQ(options.optim, "adamw_torch");
}

TEST(ResolveDsConfig, DecaysAsTorchDoesWhenTorchsAdamIsAskedFor) {
  const auto decay = [](const std::string& optimizer) {
    return resolved(R"({"optimizer": )" + optimizer + "}", {.options = {}}).config.optimizer->weight_decay;
  };
  EXPECT_EQ(decay(R"({"type": "AdamW"})"), 0.0);
  EXPECT_EQ(decay(R"({"type": "AdamW", "params": {"torch_adam": true}})"), 0.01);
  EXPECT_EQ(decay(R"({"type": "Adam", "params": {"torch_adam": true, "adam_w_mode": false}})"), 0.0);
  EXPECT_EQ(decay(R"({"type": "SGD", "params": {"lr": 0.1, "torch_adam": true}})"), 0.0);
  EXPECT_EQ(decay(R"({"type": "AdamW", "params": {"torch_adam": true, "weight_decay": 0.3}})"), 0.3);
}

TEST(ResolveDsConfig, RefusesCombinationsAsDeepSpeedDoes) {
  const auto with_zero = [](const std::string& zero) {
    return refusal(R"({"train_batch_size": 8, "zero_optimization": {)" + zero + "}}");
  };
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"), HasSubstr("cannot both be on"));
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true}})", {.options = {.bf16 = true}, .given_flags = {"bf16"}}),
              HasSubstr("fp16 (file) and bf16 (--bf16) cannot both be on"));
  EXPECT_THAT(with_zero(R"("stage": 2, "offload_param": {"device": "cpu"})"),
              HasSubstr("zero_optimization.offload_param.device=cpu needs stage 3, not 2"));
  EXPECT_THAT(with_zero(R"("stage": 0, "cpu_offload": true)"),
              HasSubstr("offload_optimizer.device=cpu needs stage 1 or above, not 0"));
  EXPECT_THAT(with_zero(R"("stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5})"),
              HasSubstr("ratio=0.5 needs stage 3"));
  EXPECT_THAT(with_zero(R"("stage": 3, "offload_param": {"device": "nvme"})"),
              HasSubstr("needs zero_optimization.offload_param.nvme_path"));
  EXPECT_THAT(with_zero(R"("stage": 3, "mics_shard_size": 4)"), HasSubstr("mics_shard_size=4 does not divide 1 ranks"));
  EXPECT_THAT(with_zero(R"("stage": 2, "zero_hpz_partition_size": 2)"),
              HasSubstr("zero_hpz_partition_size=2 needs stage 3"));
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"lr": 1e-3}}})"), HasSubstr("without optimizer.type"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Lion", "params": {"eps": 1e-8}}})"),
              HasSubstr("optimizer.params.eps: Lion has no such parameter"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "SGD", "params": {"betas": "auto"}}})"),
              HasSubstr("optimizer.params.betas: SGD has no such parameter; it has: lr, momentum"));
}

TEST(ResolveDsConfig, KeepsMastersGradientsAndStatesInBf16OnlyTogether) {
  const auto with_bf16 = [](const std::string& keys, const std::string& more = "") {
    return refusal(R"({"train_batch_size": 8, "bf16": {)" + keys + "}" + more + "}");
  };
  const std::string masters = R"("bf16_master_weights_and_grads": true)";
  const std::string states = R"("bf16_optimizer_states": true)";
  const std::string enabled = R"("enabled": true, )";
  EXPECT_EQ(with_bf16(enabled + masters + ", " + states), "accepted");
  EXPECT_EQ(with_bf16(enabled + masters + ", " + states, R"(, "data_types": {"grad_accum_dtype": "bf16"})"),
            "accepted");
  EXPECT_THAT(with_bf16(enabled + states), HasSubstr("bf16_optimizer_states needs bf16.bf16_master_weights_and_grads"));
  EXPECT_THAT(with_bf16(enabled + masters),
              HasSubstr("bf16_master_weights_and_grads needs bf16.bf16_optimizer_states"));
  EXPECT_THAT(with_bf16(masters + ", " + states), HasSubstr("needs bf16.enabled, which is off"));
  EXPECT_THAT(with_bf16(enabled + masters + ", " + states, R"(, "data_types": {"grad_accum_dtype": "fp32"})"),
              HasSubstr("data_types.grad_accum_dtype=fp32 contradicts bf16.bf16_master_weights_and_grads"));

  training::TrainingOptions options;
  apply(resolved(R"({"train_batch_size": 8, "bf16": {)" + enabled + masters + ", " + states + "}}", {.options = {}})
            .config,
        options);
  EXPECT_EQ(options.master, Precision::kBf16);
  EXPECT_EQ(options.accumulation, Precision::kBf16);
  EXPECT_EQ(options.reduction, Precision::kFp32);
  EXPECT_FALSE(options.has_master_copies());
}

TEST(ResolveDsConfig, KeepsMastersAndGradientsInFp16) {
  const auto with_fp16 = [](const std::string& keys, const std::string& more = "") {
    return refusal(R"({"train_batch_size": 8, "fp16": {"fp16_master_weights_and_grads": true)" + keys + "}" + more +
                   "}");
  };
  const std::string enabled = R"(, "enabled": true)";
  EXPECT_EQ(with_fp16(enabled), "accepted");
  EXPECT_EQ(with_fp16(enabled, R"(, "data_types": {"grad_accum_dtype": "fp16"})"), "accepted");
  EXPECT_THAT(with_fp16(""), HasSubstr("fp16.fp16_master_weights_and_grads needs fp16.enabled, which is off"));
  EXPECT_THAT(with_fp16(enabled, R"(, "data_types": {"grad_accum_dtype": "fp32"})"),
              HasSubstr("data_types.grad_accum_dtype=fp32 contradicts fp16.fp16_master_weights_and_grads"));

  training::TrainingOptions options;
  const std::string file = R"({"train_batch_size": 8, "fp16": {"fp16_master_weights_and_grads": true)" + enabled + "}}";
  apply(resolved(file, {.options = {}}).config, options);
  EXPECT_EQ(options.master, Precision::kFp16);
  EXPECT_EQ(options.state_precision(), Precision::kFp32) << "DeepSpeed's fp32_optimizer_states";
  EXPECT_EQ(options.accumulation, Precision::kFp16);
  EXPECT_EQ(options.reduction, Precision::kFp32);
  EXPECT_FALSE(options.has_master_copies());
  EXPECT_NO_THROW(options.validate());
  options.optim = "lion";
  EXPECT_THROW(options.validate(), Error);
}

TEST(ResolveDsConfig, ChecksTheParametersOfTheScheduler) {
  const auto with_scheduler = [](const std::string& scheduler) {
    return refusal(R"({"scheduler": {)" + scheduler + "}}");
  };
  EXPECT_THAT(with_scheduler(R"("type": "WarmupDecayLR", "params": {})"),
              HasSubstr("WarmupDecayLR needs scheduler.params.total_num_steps"));
  EXPECT_THAT(with_scheduler(R"("type": "WarmupLR", "params": {"total_num_steps": 5})"),
              HasSubstr("scheduler.params.total_num_steps is not a parameter of WarmupLR"));
  EXPECT_THAT(with_scheduler(R"("type": "WarmupLR", "params": {"warmup_min_lr": 1, "warmup_max_lr": 0.1})"),
              HasSubstr("warmup_min_lr is above warmup_max_lr"));
  EXPECT_THAT(with_scheduler(R"("params": {"warmup_min_lr": 1})"), HasSubstr("without scheduler.type"));
  EXPECT_EQ(with_scheduler(R"("type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4})"),
            "accepted");
  EXPECT_THAT(resolved(R"({"scheduler": {"type": "WarmupCosineLR",
                                         "params": {"total_num_steps": 5, "warmup_num_steps": 10}}})",
                       {.options = {}})
                  .notices,
              ElementsAre(HasSubstr("the run ends before its warm-up")));
}

TEST(ResolveDsConfig, CyclesNoMomentumOfAnOptimizerWithoutBetas) {
  const auto cycled = [](const std::string& optimizer, const training::TrainingOptions& options) {
    return resolved("{" + optimizer + R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4,
                                                       "cycle_max_lr": 1e-2}}})",
                    {.options = options});
  };
  const std::string sgd = R"("optimizer": {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}}, )";
  for (const ResolvedDsConfig& result : {cycled(sgd, {}), cycled("", {.optim = "adagrad"})}) {
    EXPECT_EQ(result.config.scheduler->params.at("cycle_momentum"), false);
    EXPECT_EQ(row(result, "scheduler.params.cycle_momentum").origin, "the optimizer has no betas");
    EXPECT_THAT(result.notices, ElementsAre(HasSubstr("cycle_momentum: the optimizer has no betas to cycle")));
    training::TrainingOptions options{.optim = "adagrad"};
    apply(result.config, options);
    options.validate();
  }
  const ResolvedDsConfig adam = cycled(R"("optimizer": {"type": "AdamW"}, )", {});
  EXPECT_EQ(adam.config.scheduler->params.at("cycle_momentum"), true);
  EXPECT_TRUE(adam.notices.empty());
}

TEST(ResolveDsConfig, AWarmUpOfNoStepIsRefusedAsInDeepSpeed) {
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}})", {.options = {}}),
              HasSubstr("scheduler.params.warmup_num_steps"));
}

TEST(ResolveDsConfig, SaysThatAWarmUpHasTwoStepsAtLeast) {
  const auto notices = [](const std::string& steps) {
    return resolved(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": )" + steps + "}}}",
                    {.options = {}})
        .notices;
  };
  EXPECT_THAT(notices("1"), ElementsAre(HasSubstr("warmup_num_steps 1: the warm-up takes 2, DeepSpeed's fewest")));
  EXPECT_THAT(notices("\"auto\""), ElementsAre(HasSubstr("warmup_num_steps 1: the warm-up takes 2")));
  EXPECT_TRUE(notices("2").empty());
}

TEST(ResolveDsConfig, WritesCheckpointsWhileTrainingGoesOn) {
  const auto is_asynchronous = [](const std::string& config) {
    training::TrainingOptions options;
    apply(resolved(config, {.options = {}}).config, options);
    return options.async_save;
  };
  EXPECT_FALSE(is_asynchronous("{}"));
  EXPECT_TRUE(is_asynchronous(R"({"checkpoint": {"writer": {"decoupled": true}}})"));
  EXPECT_FALSE(is_asynchronous(R"({"checkpoint": {"writer": {"decoupled": false}}, "nebula": {"enabled": false}})"));
  EXPECT_TRUE(is_asynchronous(R"({"nebula": {"enabled": true}})"));
  const ResolvedDsConfig nebula =
      resolved(R"({"nebula": {"enabled": true, "persistent_storage_path": "/outputs"}})", {.options = {}});
  EXPECT_THAT(nebula.notices, ElementsAre(HasSubstr("nebula.enabled: checkpoints are written to --output_dir while")));
  EXPECT_EQ(row(nebula, "nebula.enabled").origin, "file");
}

TEST(ResolveDsConfig, KeepsEveryCheckpointWhateverNebulaKeepsInMemory) {
  const ResolvedDsConfig result =
      resolved(R"({"nebula": {"enabled": true, "num_of_version_in_retention": 3}})", {.options = {}});
  training::TrainingOptions options;
  apply(result.config, options);
  EXPECT_EQ(options.save_total_limit, training::TrainingOptions().save_total_limit);
  EXPECT_THAT(row(result, "nebula.num_of_version_in_retention").origin, HasSubstr("--save_total_limit says how many"));
}

TEST(ResolveDsConfig, ShowsEveryValueAndWhereItCameFrom) {
  const ResolvedDsConfig result = resolved(
      R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "round_robin_gradients": true}})",
      {.options = {.max_grad_norm = 2}, .given_flags = {"max_grad_norm"}});
  const std::string table = format_table(result.rows);
  EXPECT_THAT(table, HasSubstr("\ngradient_clipping "));
  EXPECT_EQ(row(result, "gradient_clipping").origin, "--max_grad_norm");
  EXPECT_EQ(row(result, "zero_optimization.stage").origin, "file");
  EXPECT_THAT(row(result, "zero_optimization.round_robin_gradients").origin, HasSubstr("file, no effect: "));
  const auto json = to_json(result);
  EXPECT_EQ(json.at("settings").at("train_micro_batch_size_per_gpu").at("value"), 4);
  EXPECT_EQ(json.at("settings").at("train_micro_batch_size_per_gpu").at("from"), "file");
  EXPECT_EQ(json.at("settings").size(), result.rows.size());
  EXPECT_EQ(json.at("source"), "--deepspeed (inline)");
}

TEST(ResolveDsConfig, KeepsKeysOfOtherServicesOutOfTheTable) {
  const ResolvedDsConfig result = resolved(R"({"comet": {"enabled": false, "api_key": "secret"}})", {.options = {}});
  EXPECT_THAT(to_json(result).dump(), Not(HasSubstr("secret")));
  EXPECT_EQ(row(result, "comet.api_key").value, "(not shown)");
}

TEST(ResolveDsConfig, SetsTheOptionsItDecidesAndNoOthers) {
  training::TrainingOptions options{.learning_rate = 3e-5, .seed = 7};
  apply(resolved(R"({"train_batch_size": 32, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
                     "gradient_clipping": 0, "dataloader_drop_last": true})",
                 {.options = options})
            .config,
        options);
  EXPECT_EQ(options.per_device_train_batch_size, 8);
  EXPECT_EQ(options.gradient_accumulation_steps, 4);
  EXPECT_TRUE(options.bf16);
  EXPECT_TRUE(options.dataloader_drop_last);
  EXPECT_EQ(options.max_grad_norm, 0);
  EXPECT_EQ(options.learning_rate, 3e-5) << "the file has no optimizer";
  EXPECT_EQ(options.seed, 7U);
  apply(resolved(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})", {.options = options}).config, options);
  EXPECT_EQ(options.learning_rate, 0.01);
}

}  // namespace
}  // namespace strake::integrations::ds_config_resolve_test
