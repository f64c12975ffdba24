#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/inference/engine.h"
#include "strake/tasks/precision_choice.h"
#include "strake/tasks/scoring_task.h"
#include "strake/tasks/text_rows.h"

namespace strake::tasks {

// Flags that predict and evaluate share.
struct ScoreConfig {
  std::string model_name_or_path;
  std::vector<std::string> input;
  TextOptions text;  // but for what depends on the task: see text_options()
  std::optional<int64_t> max_seq_length;
  TaskFlags task;  // visited by the verbs that have it
  std::string device = "cpu";
  std::optional<int64_t> max_tokens_per_batch;
  PrecisionFlags precision;
  std::string packed_weights = "auto";
  bool summary_json = false;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("model_name_or_path", self.model_name_or_path, "folder of a fine-tuned model");
    visit("input", self.input,
          "Parquet, CSV, TSV, JSONL or text files, all but Parquet also as .gz, .bz2 or .zst; or folders of them");
    visit("text_column", self.text.text_column, "column with the text");
    visit("text_pair_column", self.text.text_pair_column, "column with the second text of a pair");
    visit("label_column", self.text.label_column, "column with the label, if there is one");
    visit(
        "encoding", self.text.encoding,
        "of CSV, JSONL and text files, and of strings in Parquet files but for dictionaries: utf-8, cp1252 or latin-1");
    visit("max_seq_length", self.max_seq_length,
          "tokens after which a text is cut, special ones included; default: 128, or what a folder of "
          "sentence-transformers says. Of question-answering: tokens of the windows that a text is cut into; default: "
          "384. Defaults are no more than the model's positions and the tokenizer's model_max_length");
    visit("device", self.device, "cpu; cuda: a GPU; cuda:1: the one with that number");
    visit("max_tokens_per_batch", self.max_tokens_per_batch,
          "tokens that a core computes at a time, default: 1024, or that a GPU does, default: 65536");
    visit("precision", self.precision.precision,
          "fp32 (as if left out), bf16, int8, or auto: int8 if strake evaluate --calibrate has found it near enough to "
          "fp32 on 500 rows or more; else bf16 on GPUs and on processors with instructions for it, unless it was found "
          "too far. GPUs have no int8");
    visit("bf16", self.precision.bf16, "the same as --precision bf16");
    visit("packed_weights", self.packed_weights,
          "auto: keep the weights as this processor multiplies them in strake_packed/ beside the model, so that later "
          "starts are fast and processes share their memory; off: neither read nor write that. GPUs have none");
    visit("summary_json", self.summary_json, "print the summary as one line of JSON");
  }
  void validate() const;
  // The number that --device names; absent: the processor. Error (kUsage) for an unknown device.
  std::optional<int> gpu() const;
  int64_t tokens_at_a_time() const;
};

// What results depend on: the best instruction set, or the kind of GPU. Errors: kConfig for a GPU that is not there.
std::string kernels_of(const ScoreConfig& config);

// Says what --device is for, where there is a GPU.
void hint_at_gpus();

// Threads that tokenize beside the engine: few where it takes all cores, all of them where it is on a GPU.
int tokenizing_threads(const ScoreConfig& config);

struct ScoreReport {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t rows_cut = 0;     // with more tokens than --max_seq_length, of those that this run tokenized
  double load_seconds = 0;  // model and tokenizer
  double seconds = 0;       // everything else
  std::string precision;    // "int8 with 2 of 24 linear layers in bf16"
  Json accuracy;            // of PrecisionChoice
};

// What --model_name_or_path names, ready to score on all cores or a GPU.
struct ScoringModel {
  inference::Engine engine;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  inference::PrecisionPlan plan;
  TaskHead task;
  TextOptions text;
  double load_seconds = 0;
  std::string kernels;    // as of kernels_of()
  std::string precision;  // these two as in ScoreReport
  Json accuracy;

  Places places() const;
};
// What the task reads, and how. Errors (kUsage): columns of another task; --max_seq_length is more than the model has
// positions; --doc_stride is not less.
TextOptions text_options(const ScoreConfig& config, const TaskHead& task, const models::EncoderConfig& encoder,
                         const tokenizers::Tokenizer& tokenizer);
// Errors, with the place in the input, for what the engine would refuse of rows [begin, end).
void check_tokens(const ScoreConfig& config, const models::EncoderConfig& encoder, const EncodedRows& rows,
                  int64_t begin, int64_t end);
// What flags and config.json say, before weights and tokenizer are loaded. Made once for a run, as it tells what it
// finds.
struct ScoringPlan {
  models::EncoderConfig encoder;
  TaskHead task;
  TextOptions text;  // which columns are read
};
// The same errors, as far as they are of columns.
ScoringPlan plan_scoring(const ScoreConfig& config);
// Compares the files of a checkpoint with its manifest first.
ScoringModel load_scoring_model(const ScoreConfig& config, const ScoringPlan& plan);
// The same where that was done. `precision`: in the place of the one that the flags ask for.
ScoringModel load_verified_model(const ScoreConfig& config, const ScoringPlan& plan,
                                 const std::optional<inference::PrecisionPlan>& precision);

// What the head gives, fp32 [rows or tokens, width], for rows [begin, end). Errors (kData, kNumeric) name file and row.
at::Tensor score_encoded(const ScoreConfig& config, ScoringModel& model, const EncodedRows& rows, int64_t begin,
                         int64_t end);

// Scores the rows of `input` in constant memory: tables of some thousand rows are read and tokenized ahead of the one
// that is scored. `labels` may be null. `sink` gets the tables in order with what the head gives for all of their
// sequences or tokens.
ScoreReport score_rows(const ScoreConfig& config, ScoringModel& model, const LabelMap* labels, data::TableReader& input,
                       const std::function<void(const EncodedRows&, const at::Tensor& outputs)>& sink);

}  // namespace strake::tasks
