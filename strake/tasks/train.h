#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/integrations/ds_config.h"
#include "strake/models/planned_graph.h"
#include "strake/rows/answer_flags.h"
#include "strake/rows/text_rows.h"
#include "strake/training/options.h"
#include "strake/training/trainer.h"

namespace strake::tasks {

enum class TrainTask { kSequenceClassification, kTokenClassification, kQuestionAnswering, kCausalLm, kMaskedLm };

// Fine-tunes a classifier of texts (or a regressor) or of their words, or a model that finds answers in texts, or
// trains a causal or masked language model. Names, meaning and defaults as in Hugging Face's example scripts
// (run_classification.py, run_ner.py, run_qa.py, run_clm.py, run_mlm.py) and TrainingArguments.
struct TrainConfig {
  std::string task = "sequence-classification";
  std::string model_name_or_path;
  std::string tokenizer_name;  // empty: the model's
  std::string model_type;      // these three: to train from scratch
  std::string config_name;
  std::string config_overrides;
  std::vector<std::string> train_file;
  std::vector<std::string> validation_file;
  int64_t max_train_samples = 0;  // sequences; 0: all
  int64_t max_eval_samples = 0;
  int64_t validation_split_percentage = 0;  // of the training data; 0: none
  rows::TextOptions text{.label_column = "label"};
  int64_t block_size = 0;  // 0: as many as the model has positions, at most 1024
  double mlm_probability = 0.15;
  bool label_all_tokens = false;
  rows::AnswerTrainingFlags answers;
  std::string problem_type;
  std::string output_dir;
  bool overwrite_output_dir = false;
  bool ignore_mismatched_sizes = false;
  std::string resume_from_checkpoint;
  int64_t ranks = 1;
  int64_t ddp_timeout = comm::kDefaultPatience.count();
  std::string device = "cpu";
  std::string deepspeed;
  std::string fsdp;
  std::string fsdp_config;
  training::TrainingOptions training;
  std::vector<std::string> report_to{"none"};
  std::string logging_dir;  // empty: a new folder in output_dir
  bool disable_tqdm = false;
  std::string log_level = "info";
  bool dry_run = false;
  std::set<std::string> given;        // names of fields that the user set, also if to their defaults
  integrations::DsMonitors monitors;  // this and the next of --deepspeed
  std::optional<integrations::DsFlopsProfiler> flops_profiler;
  std::optional<integrations::DsCommsLogger> comms_logger;
  bool wall_clock_breakdown = false;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("task", self.task,
          "sequence-classification, token-classification, question-answering, causal-lm or masked-lm");
    visit("model_name_or_path", self.model_name_or_path, "folder with config.json and model.safetensors");
    visit("tokenizer_name", self.tokenizer_name, "tokenizer folder or file, if not in the model's folder");
    visit("model_type", self.model_type,
          "train a new model of this kind from scratch: gpt2 for causal-lm, bert, roberta or distilbert for masked-lm");
    visit("config_name", self.config_name,
          "causal-lm, masked-lm: train a new model of this config.json (or folder with one)");
    visit("config_overrides", self.config_overrides, "changes to the new model's configuration: n_layer=4,n_head=8");
    visit("train_file", self.train_file,
          "text (Parquet, CSV, TSV, JSONL; for language models also .txt; all but Parquet also as .gz, .bz2 or .zst), "
          "with labels for classification; or token Parquet");
    visit("validation_file", self.validation_file, "the same, for evaluation");
    visit("max_train_samples", self.max_train_samples,
          "train on the first so many rows, for language models pieces, of the files; 0: all");
    visit("max_eval_samples", self.max_eval_samples, "evaluate on the first so many; 0: all");
    visit("validation_split_percentage", self.validation_split_percentage,
          "language models: without a validation_file evaluate on the first documents of the train_file, which are "
          "not trained on then; 0: off");
    visit("text_column", self.text.text_column, "column with the text, for token-classification with its words");
    visit("text_pair_column", self.text.text_pair_column, "column with the second text of a pair");
    visit("label_column", self.text.label_column,
          "column with the label, for token-classification with the words' labels");
    visit("label_all_tokens", self.label_all_tokens,
          "token-classification: learn the label of all of a word's tokens, not of its first alone");
    rows::AnswerTrainingFlags::visit_fields(self.answers, visit);
    visit(
        "encoding", self.text.encoding,
        "of CSV, JSONL and text files, and of strings in Parquet files but for dictionaries: utf-8, cp1252 or latin-1");
    visit("max_seq_length", self.text.max_seq_length,
          "tokens after which a text is cut, special ones included; for question-answering into windows, by default of "
          "384, for masked-lm into pieces, by default of the model's positions, at most 1024");
    visit("block_size", self.block_size,
          "causal-lm: tokens of a piece into which longer texts are cut; 0: the model's positions, at most 1024");
    visit("mlm_probability", self.mlm_probability, "masked-lm: share of the tokens that are predicted");
    visit("problem_type", self.problem_type,
          "single_label_classification, multi_label_classification or regression; by default from the labels");
    visit("ignore_mismatched_sizes", self.ignore_mismatched_sizes,
          "train a model whose head has other labels than the data: a new head unless there are as many");
    visit("output_dir", self.output_dir, "folder for checkpoints, the final model and logs");
    visit("overwrite_output_dir", self.overwrite_output_dir,
          "start anew in a folder that has checkpoints: they are deleted");
    visit(
        "resume_from_checkpoint", self.resume_from_checkpoint,
        "a checkpoint folder; a run's folder, for its newest sound checkpoint; true or latest, for that of output_dir");
    visit("ranks", self.ranks, "data-parallel ranks, as threads of this process");
    visit("ddp_timeout", self.ddp_timeout,
          "seconds that a rank waits for others in a collective, before it ends the job and names them");
    visit("device", self.device, "cpu, or cuda: one GPU for each rank");
    visit("deepspeed", self.deepspeed, "a ds_config.json (file or inline JSON): ZeRO stage, batch sizes, precision");
    visit("fsdp", self.fsdp, "full_shard, shard_grad_op, hybrid_shard or no_shard, with auto_wrap and offload");
    visit("fsdp_config", self.fsdp_config, "details of --fsdp, a JSON file or inline JSON");
    training::TrainingOptions::visit_fields(self.training, visit);
    visit("report_to", self.report_to, "none, or tensorboard (or all): event files with what is logged");
    visit("logging_dir", self.logging_dir,
          "folder of TensorBoard's event files; by default TENSORBOARD_LOGGING_DIR, or a new one in output_dir/runs");
    visit("disable_tqdm", self.disable_tqdm, "no progress bar");
    visit("log_level", self.log_level, "debug, info, warning or error");
    visit("dry_run", self.dry_run, "check flags, model and data, say what would run, and stop");
  }
  void validate() const;
  // Error (kUsage) for an unknown device.
  bool trains_on_gpus() const;
  models::PlannedDevice planned_device() const {
    return trains_on_gpus() ? models::PlannedDevice::kGpu : models::PlannedDevice::kProcessor;
  }
  // Error (kUsage) for an unknown one.
  TrainTask train_task() const;
  bool has_evaluation_data() const { return !validation_file.empty() || validation_split_percentage > 0; }

 private:
  void validate_classifier() const;
  void validate_token_classifier() const;
  void validate_question_answerer() const;
  void validate_language_model() const;
  void validate_causal_lm() const;
  void validate_masked_lm() const;
};

// Errors (kUsage) naming the flag, --ranks and --model_type.
void require_known_ranks(const TrainConfig& config);
void require_known_model_type(const TrainConfig& config);

// Runs on every rank this process starts or is; results are those of rank 0. ToldError (kInterrupted) if SIGTERM ended
// the run before its last step, with a checkpoint.
training::TrainReport train(const TrainConfig& config);

}  // namespace strake::tasks
