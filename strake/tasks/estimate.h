#pragma once

#include <ostream>
#include <set>
#include <string>

#include "strake/tasks/launched_ranks.h"
#include "strake/tasks/time_report.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// What a training run would take, from the model's configuration and from what this machine does: no weights, no data.
// Flags are those of `strake train`, which plans memory the same way for its real data.
struct EstimateConfig {
  TrainConfig train;
  int64_t max_seq_length = 0;              // 0: as strake train has it for the task
  double mean_length = 0;                  // 0: all sequences have max_seq_length tokens
  int64_t per_device_eval_batch_size = 0;  // 0: nothing is evaluated
  bool processes = false;
  int64_t ranks_per_machine = 0;  // 0: as many as are started on one, otherwise all
  double memory_limit = 0;        // GiB; 0: this machine's
  SpeedFlags speeds;
  std::set<std::string> given;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    auto& train = self.train;
    auto& options = train.training;
    visit("task", train.task,
          "sequence-classification, token-classification, question-answering, causal-lm or masked-lm");
    visit("model_name_or_path", train.model_name_or_path, "folder with config.json");
    visit("model_type", train.model_type,
          "Transformers' default configuration of this kind: gpt2 for causal-lm, bert, roberta or distilbert for "
          "masked-lm");
    visit("config_name", train.config_name, "config.json, or a folder with one, instead of a model");
    visit("config_overrides", train.config_overrides,
          "language models: changes to the configuration: n_layer=4,n_head=8");
    visit(
        "max_seq_length", self.max_seq_length,
        "tokens of a sequence; 0: 128, for question-answering 384, for language models the model's positions, at most "
        "1024");
    visit("mlm_probability", train.mlm_probability, "masked-lm: share of the tokens that are predicted");
    visit("mean_length", self.mean_length, "tokens of a sequence on average; 0: all are as long as max_seq_length");
    visit("per_device_train_batch_size", options.per_device_train_batch_size, "sequences of a micro-batch on one rank");
    visit("per_device_eval_batch_size", self.per_device_eval_batch_size,
          "sequences of an evaluation's batch on one rank; 0: nothing is evaluated");
    visit("gradient_accumulation_steps", options.gradient_accumulation_steps,
          "micro-batches per rank and optimizer step");
    visit("optim", options.optim, "adamw_torch, sgd, adagrad, lion or lamb");
    visit("optim_args", options.optim_args, "name=value,name=value, as strake train takes them");
    visit("bf16", options.bf16, "compute in bfloat16, with fp32 master weights");
    visit("fp16", options.fp16, "compute in binary16, with fp32 master weights");
    visit("gradient_checkpointing", options.gradient_checkpointing, "compute blocks again in the backward pass");
    visit("async_save", options.async_save, "write checkpoints from copies in memory while training goes on");
    visit("freeze", options.frozen.freeze, "parameters that keep their values, as strake train takes them");
    visit("train_only", options.frozen.train_only, "freeze all parameters but these");
    visit("ranks", train.ranks, "data-parallel ranks; under mpirun as many as it started");
    visit("processes", self.processes, "ranks are processes (mpirun), not threads of one; under mpirun they are");
    visit("ranks_per_machine", self.ranks_per_machine,
          "with --processes: ranks on one machine; 0: all, under mpirun as many as it started on one");
    visit("deepspeed", train.deepspeed, "a ds_config.json (file or inline JSON)");
    visit("fsdp", train.fsdp, "full_shard, shard_grad_op, hybrid_shard or no_shard");
    visit("fsdp_config", train.fsdp_config, "details of --fsdp, a JSON file or inline JSON");
    visit("device", train.device, "cpu, or cuda: one GPU for each rank");
    visit("memory_limit", self.memory_limit,
          "GiB that a machine has, with --device cuda that a GPU has; 0: what is here");
    SpeedFlags::visit_fields(self.speeds, visit);
  }
  void validate() const;
};

// Flags that are not given say what was started: that many ranks, as processes.
EstimateConfig estimate_defaults(const LaunchedRanks& ranks);

// Prints memory, arithmetic, communication and time of the run, and memory and time of its alternatives. Error (kUsage)
// naming the nearest plan that fits if the run's own does not. Collective; rank 0 alone prints.
void estimate(const EstimateConfig& config, LaunchedRanks& ranks, std::ostream& out);

}  // namespace strake::tasks
