#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strake/core/error.h"
#include "strake/integrations/ds_config_resolve.h"
#include "strake/integrations/resolved_config.h"

// Configurations that people use, from parsing to resolving.
namespace strake::integrations::ds_config_examples_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kFlopsProfiler = R"("flops_profiler": {"enabled": true, "profile_step": 1, "module_depth": -1,
  "top_modules": 1, "detailed": true, "output_file": "outputs/profile.txt"})";

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
  EXPECT_EQ(result.config.compute_dtype, Precision::kFp16);
  EXPECT_EQ(result.config.zero.stage, 1);
  EXPECT_FALSE(result.config.optimizer || result.config.scheduler);
  EXPECT_EQ(result.config.monitors.tensorboard, "outputs/runs/train_bert");
  EXPECT_EQ(result.config.monitors.csv, std::nullopt);
  EXPECT_EQ(result.config.monitors.samples_per_step, 93 * 16);
  ASSERT_TRUE(result.config.flops_profiler);
  EXPECT_EQ(result.config.flops_profiler->profile_step, 1);
  EXPECT_THAT(result.notices, ElementsAre(HasSubstr("nebula.enabled: ")));
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
  EXPECT_EQ(config.compute_dtype, Precision::kBf16);
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
  EXPECT_EQ(config.compute_dtype, Precision::kFp32);
  EXPECT_EQ(config.loss_scaling.initial_scale_power, 16);
  ASSERT_TRUE(config.optimizer && config.scheduler);
  EXPECT_EQ(config.optimizer->learning_rate, 3e-5);
  EXPECT_EQ(config.optimizer->settings.betas.second, 0.999);
  EXPECT_EQ(config.optimizer->weight_decay, 0.01);
  EXPECT_EQ(config.scheduler->params,
            (Json{{"warmup_min_lr", 0.0}, {"warmup_max_lr", 3e-5}, {"warmup_num_steps", 50}, {"warmup_type", "log"}}));
  EXPECT_EQ(config.zero.offload_optimizer.device, DsDevice::kCpu);
  EXPECT_THAT(result.notices, IsEmpty());
  EXPECT_EQ(row(result, "optimizer.params.lr").origin, "auto <- --learning_rate");
  EXPECT_EQ(row(result, "train_batch_size").origin, "4 * 8 * 2 ranks");
  EXPECT_THAT(row(result, "zero_optimization.reduce_bucket_size").origin, HasSubstr("file, no effect: "));
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
  EXPECT_EQ(result.config.compute_dtype, Precision::kBf16);
  EXPECT_EQ(zero.param_persistence_threshold, 10240);
  EXPECT_EQ(zero.sub_group_size, 1000000000);
  EXPECT_EQ(zero.offload_param.nvme_path, "/local_nvme");
  EXPECT_TRUE(zero.offload_param.pin_memory && zero.offload_optimizer.pin_memory);
  EXPECT_EQ(result.config.aio.queue_depth, 32);
  EXPECT_EQ(result.config.scheduler->params.at("total_num_steps"), 300);
  EXPECT_EQ(result.config.scheduler->params.at("warmup_num_steps"), 20);
  EXPECT_THAT(refusal(kZero3, {.options = {}}), HasSubstr("follows from hidden_size, which this model does not have"));
}

}  // namespace
}  // namespace strake::integrations::ds_config_examples_test
