#include "strake/training/ds_config_resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/core/error.h"

namespace strake::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kFlopsProfiler = R"("flops_profiler": {"enabled": true, "profile_step": 1, "module_depth": -1,
  "top_modules": 1, "detailed": true, "output_file": "outputs/profile.txt"})";

ResolvedDsConfig resolved(const std::string& config, const ResolveInputs& inputs) {
  return resolve(parse_ds_config(config), inputs);
}

std::string refusal(const std::string& config, const ResolveInputs& inputs) {
  try {
    resolved(config, inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string refusal(const std::string& config) { return refusal(config, {.options = {}}); }

const DsRow& row(const ResolvedDsConfig& config, const std::string& key) {
  const auto found = std::ranges::find(config.rows, key, &DsRow::key);
  if (found == config.rows.end()) fail(ErrorKind::kInternal, "no row {}", key);
  return *found;
}

// The five files of Azure/azureml-examples, best-practices/largescale-deep-learning/Training, as they are.
TEST(AzureMlConfigs, BertPretrainingIsAccepted) {
  const ResolvedDsConfig result = resolved(R"({
    "train_micro_batch_size_per_gpu": 93, "fp16": {"enabled": true}, )" +
                                               kFlopsProfiler + R"(,
    "zero_optimization": {"stage": 1},
    "tensorboard": {"enabled": true, "output_path": "outputs/runs/", "job_name": "train_bert"},
    "nebula": {"enabled": true, "persistent_storage_path": "/outputs/nebula_checkpoint/",
               "persistent_time_interval": 10, "num_of_version_in_retention": 2, "enable_nebula_load": true},
    "gradient_accumulation_steps": 1})",
                                           {.options = {}, .world_size = 16});
  EXPECT_EQ(result.config.train_micro_batch_size_per_gpu, 93);
  EXPECT_EQ(result.config.train_batch_size, 93 * 16);
  EXPECT_EQ(result.config.compute_dtype, DsDtype::kFp16);
  EXPECT_EQ(result.config.zero.stage, 1);
  EXPECT_EQ(result.config.save_total_limit, 2);
  EXPECT_FALSE(result.config.optimizer || result.config.scheduler);
  EXPECT_THAT(result.notices, ElementsAre(HasSubstr("flops_profiler.enabled: "), HasSubstr("nebula.enabled: "),
                                          HasSubstr("tensorboard.enabled: ")));
}

TEST(AzureMlConfigs, BertBaseIsAcceptedOnSixteenRanks) {
  const std::string config = R"({"train_micro_batch_size_per_gpu": 532, "fp16": {"enabled": true}, )" + kFlopsProfiler +
                             R"(, "zero_optimization": {"stage": 0}, "gradient_accumulation_steps": 1,
                                  "train_batch_size": 8512})";
  EXPECT_EQ(resolved(config, {.options = {}, .world_size = 16}).config.train_batch_size, 8512);
  EXPECT_THAT(refusal(config, {.options = {}, .world_size = 8}),
              HasSubstr("train_batch_size=8512 is not train_micro_batch_size_per_gpu=532 * "
                        "gradient_accumulation_steps=1 * 8 ranks = 4256"));
}

TEST(AzureMlConfigs, DistilBertIsAccepted) {
  const DsConfig config =
      resolved(R"({"train_micro_batch_size_per_gpu": 512, "fp16": {"enabled": true}, )" + kFlopsProfiler +
                   R"(, "zero_optimization": {"stage": 0}, "gradient_accumulation_steps": 2})",
               {.options = {}, .world_size = 4})
          .config;
  EXPECT_EQ(config.train_batch_size, 4096);
  EXPECT_EQ(config.gradient_accumulation_steps, 2);
}

TEST(AzureMlConfigs, BloomPretrainingIsAccepted) {
  const DsConfig config = resolved(R"({
    "train_micro_batch_size_per_gpu": 2, "train_batch_size": 16, "gradient_clipping": 1,
    "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}, "steps_per_print": 1,
    "wall_clock_breakdown": false,
    "flops_profiler": {"enabled": true, "profile_step": 1, "module_depth": -1, "top_modules": 1, "detailed": true,
                       "output_file": null}})",
                                   {.options = {}, .world_size = 4})
                              .config;
  EXPECT_EQ(config.gradient_accumulation_steps, 2);
  EXPECT_EQ(config.compute_dtype, DsDtype::kBf16);
  EXPECT_EQ(config.gradient_clipping, 1.0);
}

TEST(AzureMlConfigs, AutotuningIsAcceptedWithANotice) {
  const ResolvedDsConfig result = resolved(R"({
    "train_micro_batch_size_per_gpu": "auto",
    "autotuning": {"enabled": true, "fast": false,
      "arg_mappings": {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
                       "gradient_accumulation_steps ": "--gradient_accumulation_steps"},
      "results_dir": "outputs/autotuning_results/results", "exps_dir": "outputs/autotuning_results/exps"}})",
                                           {.options = {.per_device_train_batch_size = 12}, .world_size = 2});
  EXPECT_EQ(result.config.train_micro_batch_size_per_gpu, 12);
  EXPECT_EQ(result.config.train_batch_size, 24);
  EXPECT_THAT(result.notices, ElementsAre(HasSubstr("autotuning.enabled: training uses the values given")));
}

// Hugging Face's documentation of its DeepSpeed integration: ZeRO-2 with "auto" where it can be.
TEST(ResolveDsConfig, FillsTheZero2ExampleOfHuggingFace) {
  const ResolvedDsConfig result = resolved(R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
             "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR",
                  "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true, "reduce_scatter": true,
      "reduce_bucket_size": 2e8, "contiguous_gradients": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})",
                                           {.options = {.per_device_train_batch_size = 4,
                                                        .gradient_accumulation_steps = 8,
                                                        .learning_rate = 3e-5,
                                                        .weight_decay = 0.01,
                                                        .max_grad_norm = 0.5,
                                                        .warmup_ratio = 0.1},
                                            .world_size = 2,
                                            .total_steps = 500});
  const DsConfig& config = result.config;
  EXPECT_EQ(config.train_batch_size, 64);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.compute_dtype, DsDtype::kFp32);
  EXPECT_EQ(config.loss_scaling.initial_scale_power, 16);
  ASSERT_TRUE(config.optimizer && config.scheduler);
  EXPECT_EQ(config.optimizer->learning_rate, 3e-5);
  EXPECT_EQ(config.optimizer->beta2, 0.999);
  EXPECT_EQ(config.optimizer->weight_decay, 0.01);
  EXPECT_EQ(config.scheduler->params,
            (Json{{"warmup_min_lr", 0.0}, {"warmup_max_lr", 3e-5}, {"warmup_num_steps", 50}, {"warmup_type", "log"}}));
  EXPECT_EQ(config.zero.reduce_bucket_size, 200000000);
  EXPECT_EQ(config.zero.offload_optimizer.device, DsDevice::kCpu);
  EXPECT_TRUE(config.zero.overlap_comm);
  EXPECT_THAT(result.notices, IsEmpty());
  EXPECT_EQ(row(result, "optimizer.params.lr").origin, "auto <- --learning_rate");
  EXPECT_EQ(row(result, "train_batch_size").origin, "4 * 8 * 2 ranks");
  EXPECT_EQ(row(result, "zero_optimization.reduce_bucket_size").origin, "file");
  EXPECT_EQ(row(result, "zero_optimization.sub_group_size").origin, "default");
  EXPECT_EQ(row(result, "steps_per_print").origin, "file, no effect: --logging_steps decides");
}

const std::string kZero3 = R"({
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_min_lr": "auto",
                                                     "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme",
        "pin_memory": true, "buffer_count": 4, "fast_init": false},
      "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true, "buffer_count": 5,
        "buffer_size": 1e8, "max_in_cpu": 1e9},
      "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": "auto", "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
      "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
      "stage3_gather_16bit_weights_on_model_save": true},
    "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 1, "single_submit": false,
            "overlap_events": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 1e5,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})";

TEST(ResolveDsConfig, FillsTheZero3ExampleOfHuggingFaceFromTheModelAndTheRun) {
  const ResolveInputs inputs{
      .options = {.warmup_steps = 20, .bf16 = true}, .world_size = 2, .hidden_size = 1024, .total_steps = 300};
  const ResolvedDsConfig result = resolved(kZero3, inputs);
  const DsZero& zero = result.config.zero;
  EXPECT_EQ(result.config.compute_dtype, DsDtype::kBf16);
  EXPECT_EQ(zero.reduce_bucket_size, 1024 * 1024);
  EXPECT_EQ(zero.prefetch_bucket_size, 943718);  // int(0.9 * 1024 * 1024)
  EXPECT_EQ(zero.param_persistence_threshold, 10240);
  EXPECT_EQ(zero.sub_group_size, 1000000000);
  EXPECT_EQ(zero.offload_param.nvme_path, "/local_nvme");
  EXPECT_EQ(zero.offload_param.max_in_cpu, 1000000000);
  EXPECT_TRUE(zero.gather_16bit_weights_on_model_save);
  EXPECT_EQ(result.config.aio.queue_depth, 32);
  EXPECT_EQ(result.config.scheduler->params.at("total_num_steps"), 300);
  EXPECT_EQ(result.config.scheduler->params.at("warmup_num_steps"), 20);
  EXPECT_THAT(refusal(kZero3, {.options = {}}), HasSubstr("follows from hidden_size, which this model does not have"));
}

TEST(ResolveDsConfig, LeavesTheScheduleOpenUntilTheStepsAreKnown) {
  const ResolvedDsConfig open = resolved(kZero3, {.options = {.warmup_ratio = 0.5}, .hidden_size = 8});
  EXPECT_TRUE(open.config.scheduler->params.at("total_num_steps").is_null());
  EXPECT_TRUE(open.config.scheduler->params.at("warmup_num_steps").is_null());
  const ResolvedDsConfig known =
      resolved(kZero3, {.options = {.warmup_ratio = 0.5}, .hidden_size = 8, .total_steps = 9});
  EXPECT_EQ(known.config.scheduler->params.at("warmup_num_steps"), 5);
  // Without warm-up DeepSpeed still wants a positive number.
  EXPECT_EQ(resolved(kZero3, {.options = {}, .hidden_size = 8}).config.scheduler->params.at("warmup_num_steps"), 1);
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

TEST(ResolveDsConfig, RefusesBatchNumbersThatDoNotFit) {
  EXPECT_THAT(refusal(R"({"gradient_accumulation_steps": 4})"), HasSubstr("alone does not say how large a batch is"));
  EXPECT_EQ(
      refusal(R"({"gradient_accumulation_steps": 4})", {.options = {}, .given_flags = {"per_device_train_batch_size"}}),
      "accepted");
  EXPECT_THAT(refusal(R"({"train_batch_size": 6, "train_micro_batch_size_per_gpu": 4})"),
              HasSubstr("train_batch_size=6 is not a multiple of train_micro_batch_size_per_gpu=4 * 1 ranks"));
  EXPECT_THAT(refusal(R"({"train_batch_size": 6})", {.options = {}, .world_size = 4}),
              HasSubstr("not a multiple of gradient_accumulation_steps=1 * 4 ranks"));
  EXPECT_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 1e9, "gradient_accumulation_steps": 1e9})"),
              HasSubstr("is out of range"));
  EXPECT_THAT(refusal("{}", {.options = {.per_device_train_batch_size = 0}}), HasSubstr("must be positive"));
}

TEST(ResolveDsConfig, ListsEveryContradictionToAFlagThatWasGiven) {
  const std::string config = R"({"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.5, "bf16": {"enabled": false},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_max_lr": 1e-4}}})";
  const TrainingOptions options{.per_device_train_batch_size = 8,
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
  const TrainingOptions options{.learning_rate = 3e-5, .weight_decay = 0.2};
  const DsOptimizer optimizer =
      *resolved(config, {.options = options, .given_flags = {"weight_decay"}}).config.optimizer;
  EXPECT_EQ(optimizer.type, "AdamW");
  EXPECT_EQ(optimizer.learning_rate, 1e-3);  // FusedAdam's
  EXPECT_EQ(optimizer.beta1, 0.5);
  EXPECT_EQ(optimizer.epsilon, 1e-8);
  EXPECT_EQ(optimizer.weight_decay, 0.2);
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
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})"),
              HasSubstr("adam_w_mode=false adds weight_decay=0.1 to the gradient"));
  EXPECT_EQ(refusal(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})"), "accepted");
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

TEST(ResolveDsConfig, LetsTheSaveLimitFlagGoBeforeNebula) {
  const std::string config = R"({"nebula": {"enabled": true}})";
  EXPECT_EQ(resolved(config, {.options = {}}).config.save_total_limit, 2);
  const ResolvedDsConfig flag =
      resolved(config, {.options = {.save_total_limit = 7}, .given_flags = {"save_total_limit"}});
  EXPECT_EQ(flag.config.save_total_limit, std::nullopt);
  EXPECT_THAT(flag.notices.back(), HasSubstr("--save_total_limit 7 was given and decides"));
  EXPECT_EQ(resolved(R"({"nebula": {"num_of_version_in_retention": 3}})", {.options = {}}).config.save_total_limit,
            std::nullopt);
}

TEST(ResolveDsConfig, ShowsEveryValueAndWhereItCameFrom) {
  const ResolvedDsConfig result = resolved(
      R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "round_robin_gradients": true}})",
      {.options = {.max_grad_norm = 2}, .given_flags = {"max_grad_norm"}});
  const std::string table = format_table(result.rows);
  EXPECT_THAT(table, HasSubstr("\ngradient_clipping "));
  EXPECT_EQ(row(result, "gradient_clipping").origin, "--max_grad_norm");
  EXPECT_EQ(row(result, "zero_optimization.overlap_comm").value, true);
  EXPECT_THAT(row(result, "zero_optimization.round_robin_gradients").origin, HasSubstr("file, no effect: "));
  const auto json = to_json(result);
  EXPECT_EQ(json.at("settings").at("train_micro_batch_size_per_gpu").at("value"), 4);
  EXPECT_EQ(json.at("settings").at("train_micro_batch_size_per_gpu").at("from"), "file");
  EXPECT_EQ(json.at("settings").size(), result.rows.size());
  EXPECT_EQ(json.at("source"), "--deepspeed (inline)");
}

TEST(ResolveDsConfig, SetsTheOptionsItDecidesAndNoOthers) {
  TrainingOptions options{.learning_rate = 3e-5, .seed = 7};
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
}  // namespace strake::training
