#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strake/optim/learning_rate.h"
#include "strake/optim/loss_scaler.h"
#include "strake/optim/optimizer.h"
#include "strake/training/freezing.h"
#include "strake/training/precision.h"
#include "strake/training/sharding.h"

// The part of Hugging Face's TrainingArguments that decides how a run goes, with the same names, meaning and defaults.
namespace strake::training {

enum class Interval { kNo, kSteps, kEpoch };

// When something is done again: with kSteps, after so many optimizer steps.
struct Recurrence {
  Interval interval = Interval::kNo;
  int64_t steps = 1;
};
struct StepIntervals {
  Recurrence logging;
  Recurrence evaluation;
  Recurrence saving;
};

inline constexpr int64_t kMostAccumulationSteps = 1'000'000;
inline constexpr double kHighestLearningRate = 1e38;  // of fp32, in which updates are made

struct TrainingOptions {
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;
  int64_t max_tokens_per_batch = 0;
  int64_t gradient_accumulation_steps = 1;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;
  std::string optim = "adamw_torch";
  std::string optim_args;
  double learning_rate = 5e-5;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  double label_smoothing_factor = 0.0;
  std::string lr_scheduler_type = "linear";
  std::string lr_scheduler_kwargs;
  std::string lr_scheduler_kwargs_source = "lr_scheduler_kwargs";  // of errors: the flag, or a file's key
  double warmup_ratio = 0.0;
  double warmup_steps = 0;  // these and logging_steps, eval_steps and save_steps: below 1 a share of all steps
  uint64_t seed = 42;
  std::optional<uint64_t> data_seed;
  bool bf16 = false;
  bool fp16 = false;
  bool gradient_checkpointing = false;
  bool checkpoints_on_host = false;  // set by --deepspeed: inputs kept by gradient_checkpointing, of GPUs
  bool dataloader_drop_last = false;
  FreezeRules frozen;
  ShardingOptions sharding;  // set by --deepspeed and --fsdp
  // Set by --deepspeed.
  std::optional<optim::OptimizerSettings> configured_optimizer;  // instead of optim and its arguments
  optim::LossScaling loss_scaling;                               // of fp16
  Precision reduction = Precision::kFp32;     // what a micro-batch's gradient is rounded to before it is reduced
  Precision accumulation = Precision::kFp32;  // in which the sum over micro-batches is kept
  Precision master = Precision::kFp32;        // of master weights: fp32, or that of the computation
  // Set by --device cuda: number of the rank's GPU. None: this processor.
  std::optional<int> gpu = std::nullopt;

  std::string logging_strategy = "steps";
  double logging_steps = 500;
  bool logging_first_step = false;
  std::string eval_strategy = "no";
  double eval_steps = 0;  // 0: logging_steps
  double eval_delay = 0;  // steps or epochs, as eval_strategy says
  bool eval_on_start = false;
  std::string save_strategy = "steps";
  double save_steps = 500;
  int64_t save_total_limit = 0;  // 0: keep all
  bool async_save = false;
  bool enable_jit_checkpoint = true;
  bool load_best_model_at_end = false;
  // The best checkpoint outlives --save_total_limit.
  bool keeps_best() const { return load_best_model_at_end || !metric_for_best_model.empty(); }
  std::string metric_for_best_model;      // empty: loss
  std::optional<bool> greater_is_better;  // none: false for losses and errors, else true
  int64_t early_stopping_patience = 0;    // 0: off
  double early_stopping_threshold = 0.0;

  // A checkpoint's copies are in memory beside a step.
  bool keeps_copies() const { return async_save && save_strategy != "no"; }

  Precision precision() const { return bf16 ? Precision::kBf16 : fp16 ? Precision::kFp16 : Precision::kFp32; }
  // Of the optimizer's state. fp16 would lose the squares of small gradients.
  Precision state_precision() const { return master == Precision::kBf16 ? Precision::kBf16 : Precision::kFp32; }
  // Transformers leaves biases and layer norms out of the decay, but not where an optimizer of a ds_config.json is
  // given all parameters as one group.
  bool decays_all() const { return configured_optimizer.has_value(); }
  // Otherwise the parameters are their own master weights.
  bool has_master_copies() const { return precision() != master; }
  // Of what units on disk have there, the arrays before the optimizer's states: master weights, but not where these
  // always are parameters in memory; then the parameters of passes, if those are on disk and are rounded.
  std::vector<Precision> weights_on_disk() const;
  // For people: "bf16", or "bf16, also master weights and optimizer state".
  std::string precision_text() const;
  // Error (kConfig) for names and arguments that the optimizer or the schedule does not have.
  optim::OptimizerSettings optimizer_settings() const;
  optim::ScheduleOptions schedule_options(int64_t total_steps) const;
  // Of a run of `total_steps`. Error (kUsage) if the best model would be looked for where nothing is saved.
  StepIntervals step_intervals(int64_t total_steps) const;
  uint64_t order_seed() const { return data_seed.value_or(seed); }
  // "eval_" + the metric that picks the best checkpoint.
  std::string best_metric_name() const;
  bool larger_is_better() const;

  // One list for flags, configuration files, --help and the record of a run.
  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("per_device_train_batch_size", self.per_device_train_batch_size, "sequences of a micro-batch on one rank");
    visit("per_device_eval_batch_size", self.per_device_eval_batch_size,
          "sequences of an evaluation batch on one rank");
    visit("max_tokens_per_batch", self.max_tokens_per_batch,
          "cut micro-batches by tokens instead of sequences; 0: off");
    visit("gradient_accumulation_steps", self.gradient_accumulation_steps, "micro-batches per rank and optimizer step");
    visit("num_train_epochs", self.num_train_epochs, "passes over the training data");
    visit("max_steps", self.max_steps, "optimizer steps, instead of num_train_epochs; -1: off");
    visit("optim", self.optim, "adamw_torch, sgd, adagrad, lion or lamb");
    visit("optim_args", self.optim_args,
          "name=value,name=value: momentum, dampening, nesterov (sgd), eps, lr_decay (adagrad), max_coeff, min_coeff "
          "(lamb)");
    visit("learning_rate", self.learning_rate, "peak learning rate");
    visit("weight_decay", self.weight_decay, "not for biases and layer norms, unless --deepspeed has the optimizer");
    visit("adam_beta1", self.adam_beta1, "decay of the first moment: AdamW, Lion, LAMB");
    visit("adam_beta2", self.adam_beta2, "decay of the second moment: AdamW, LAMB; of Lion's momentum");
    visit("adam_epsilon", self.adam_epsilon, "epsilon: AdamW, LAMB");
    visit("max_grad_norm", self.max_grad_norm, "clip the gradient's norm to this; 0: off");
    visit("label_smoothing_factor", self.label_smoothing_factor,
          "share of a target that is spread over all classes, in the losses of evaluations too; 0: off");
    visit("lr_scheduler_type", self.lr_scheduler_type,
          "linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup, inverse_sqrt, "
          "cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay, or DeepSpeed's WarmupLR, WarmupDecayLR, "
          "WarmupCosineLR, OneCycle, LRRangeTest");
    visit("lr_scheduler_kwargs", self.lr_scheduler_kwargs, "arguments of the schedule as JSON: {\"num_cycles\": 2}");
    visit("warmup_ratio", self.warmup_ratio, "share of all steps with rising learning rate");
    visit("warmup_steps", self.warmup_steps,
          "steps with rising learning rate, or below 1 their share of all steps, as warmup_ratio");
    visit("seed", self.seed, "of initial values, dropout and, without data_seed, data order");
    visit("data_seed", self.data_seed, "of the data order");
    visit("bf16", self.bf16, "compute in bfloat16, with fp32 master weights");
    visit("fp16", self.fp16, "compute in binary16, with fp32 master weights and DeepSpeed's dynamic loss scaling");
    visit("gradient_checkpointing", self.gradient_checkpointing,
          "keep only the inputs of blocks and compute them again in the backward pass: less memory, a third more work");
    visit(
        "dataloader_drop_last", self.dataloader_drop_last,
        "leave out an epoch's last, shorter micro-batch; Transformers then leaves out an evaluation's last rows, too, "
        "which here are all counted");
    visit("freeze", self.frozen.freeze,
          "parameters that keep their values, as shell patterns of Hugging Face names: "
          "roberta.embeddings.*,*.layer.[0-5].*");
    visit("train_only", self.frozen.train_only, "freeze all parameters but these: classifier.*");
    visit_intervals(self, visit);
  }

  // Error (kUsage) naming the flags for values that make no sense or contradict each other.
  void validate() const;
  // All but the optimizer and the schedule, for which a file of --deepspeed may have other values.
  void validate_but_updates() const;

 private:
  // Of logging, evaluation, saving and early stopping.
  template <typename Self, typename Visitor>
  static void visit_intervals(Self& self, Visitor& visit) {
    visit("logging_strategy", self.logging_strategy, "no, steps or epoch");
    visit("logging_steps", self.logging_steps, "steps between log entries; below 1: a share of all steps");
    visit("logging_first_step", self.logging_first_step, "log the first step too");
    visit("eval_strategy", self.eval_strategy, "no, steps or epoch");
    visit("eval_steps", self.eval_steps, "steps between evaluations, or a share of all; 0: logging_steps");
    visit("eval_delay", self.eval_delay,
          "steps or, with --eval_strategy epoch, epochs before the first evaluation; one at the end is made anyway");
    visit("eval_on_start", self.eval_on_start, "evaluate before the first step too");
    visit("save_strategy", self.save_strategy, "no, steps or epoch");
    visit("save_steps", self.save_steps, "steps between checkpoints; below 1: a share of all steps");
    visit("save_total_limit", self.save_total_limit,
          "checkpoints to keep; the newest, the best one if --load_best_model_at_end or --metric_for_best_model is or "
          "was given, and the last one with finite weights stay whatever the limit; 0: all");
    visit("async_save", self.async_save,
          "write checkpoints from copies in memory while training goes on; the copies take as much as a checkpoint");
    visit("enable_jit_checkpoint", self.enable_jit_checkpoint,
          "on SIGTERM finish the step, save a checkpoint and end with exit code 75; false: end at once");
    visit("load_best_model_at_end", self.load_best_model_at_end, "end with the weights of the best evaluation");
    visit("metric_for_best_model", self.metric_for_best_model, "such as accuracy, f1 or loss; empty: loss");
    visit("greater_is_better", self.greater_is_better, "by default false for losses, errors and perplexity");
    visit("early_stopping_patience", self.early_stopping_patience,
          "stop after so many evaluations without gain; 0: off");
    visit("early_stopping_threshold", self.early_stopping_threshold, "smallest gain that counts");
  }
  void validate_intervals() const;
};

// Parses logging_strategy and its like; Error (kUsage) naming the flag.
Interval parse_interval(const std::string& text, const char* flag);

}  // namespace strake::training
