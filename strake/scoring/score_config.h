#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strake/rows/text_rows.h"
#include "strake/scoring/precision_choice.h"
#include "strake/scoring/scoring_task.h"

namespace strake::scoring {

// Flags that predict and evaluate share.
struct ScoreConfig {
  std::string model_name_or_path;
  std::vector<std::string> input;
  rows::TextOptions text;  // but for what depends on the task: see ScoringModel
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
    visit("text_column", self.text.text_column,
          "column with the text; of token-classification also with lists of words, each of which gets a label");
    visit("text_pair_column", self.text.text_pair_column, "column with the second text of a pair");
    visit("label_column", self.text.label_column,
          "column with the label, if there is one; of token-classification with those of lists of words, of "
          "feature-extraction with how alike the texts of a pair are");
    visit(
        "encoding", self.text.encoding,
        "of CSV, JSONL and text files, and of strings in Parquet files but for dictionaries: utf-8, cp1252 or latin-1");
    visit("max_seq_length", self.max_seq_length,
          "tokens after which a text is cut, special ones included; default: 128, or what a folder of "
          "sentence-transformers says. Of question-answering: tokens of the windows that a text is cut into; default: "
          "384. Of masked-lm (evaluate): of pieces; default: 1024. Defaults are no more than the model's positions and "
          "the tokenizer's model_max_length");
    visit("device", self.device, "cpu; cuda: a GPU; cuda:1: the one with that number");
    visit(
        "max_tokens_per_batch", self.max_tokens_per_batch,
        "tokens that a core computes at a time, default: 1024, or that a GPU does, default: 65536 (of a language model "
        "always 16384)");
    visit("precision", self.precision.precision,
          "fp32 (as if left out), bf16, int8, or auto: int8 if strake evaluate --calibrate has found it near enough to "
          "fp32 on 500 rows or more; else bf16 on GPUs and on processors with instructions for it, unless it was found "
          "too far. GPUs have no int8; language models have fp32 and bf16");
    visit("bf16", self.precision.bf16, "the same as --precision bf16");
    visit("precision_file", self.precision.file,
          "where --calibrate writes what it finds of bf16 and int8, and --precision looks for it; default: "
          "strake_precision.json in the model's folder");
    visit(
        "packed_weights", self.packed_weights,
        "auto: keep the weights as this processor multiplies them in strake_packed/ beside the model, so that later "
        "starts are fast and processes share their memory; off: neither read nor write that. GPUs and language models "
        "have none");
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

}  // namespace strake::scoring
