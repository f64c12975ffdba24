#include "strake/cli/verbs.h"

#include <array>
#include <csignal>
#include <iostream>

#include "strake/core/log.h"
#include "strake/monitor/closing_table.h"
#include "strake/monitor/number_text.h"
#include "strake/scoring/predict_report.h"
#include "strake/tasks/estimate.h"
#include "strake/tasks/evaluate.h"
#include "strake/tasks/predict.h"
#include "strake/tasks/prepare.h"
#include "strake/tasks/tokenize.h"
#include "strake/tasks/train.h"
#include "strake/tasks/worker.h"

namespace strake::cli {
namespace {

using monitor::count_text;
using monitor::TableRow;

std::string decimals(double value) { return fmt::format("{:.4f}", value); }
double per_second(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

// The verbs' results: a table for people, or one line of JSON with --summary_json.
void print_results(const std::string& title, const std::vector<TableRow>& rows, const Json& summary, bool as_json) {
  if (as_json) {
    std::cout << json_text(summary) << "\n";
  } else {
    monitor::print_closing_table(std::cout, title, rows);
  }
}

// Of verbs whose work is in files: a log that is not read any more must not end hours of it.
void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

// What cannot be printed is not missed, as the files are complete.
void finish_printing() {
  std::cout.flush();
  if (std::cout.good()) return;
  log::warning("cannot write to standard output; the files are complete");
  std::cout.clear();
}

void run_prepare(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::PrepareConfig config;
  if (!parse_config(text, arguments, config, std::cout)) return;
  outlive_readers();
  const tasks::PrepareReport report = tasks::prepare(config);
  print_results(
      "prepare",
      {{"rows", count_text(report.rows)},
       {"tokens", count_text(report.tokens)},
       {"rows_cut", count_text(report.rows_cut)},
       {"seconds", decimals(report.seconds)},
       {"megabytes_of_text_per_second", decimals(static_cast<double>(report.text_bytes) / report.seconds / 1e6)},
       {"output", config.output}},
      {{"rows", report.rows},
       {"tokens", report.tokens},
       {"rows_cut", report.rows_cut},
       {"text_bytes", report.text_bytes},
       {"load_seconds", report.load_seconds},
       {"seconds", report.seconds}},
      config.summary_json);
  if (!config.summary_json) finish_printing();
}

void run_train(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::TrainConfig config;
  if (!parse_config(text, arguments, config, std::cout)) return;
  outlive_readers();
  tasks::train(config);
  if (!config.dry_run) finish_printing();
}

std::vector<TableRow> score_rows(const scoring::ScoreReport& report) {
  return {{"arithmetic", report.precision},
          {"rows", count_text(report.rows)},
          {"tokens", count_text(report.tokens)},
          {"rows_cut", count_text(report.rows_cut)},
          {"seconds", decimals(report.seconds)},
          {"rows_per_second", decimals(per_second(report.rows, report.seconds))},
          {"tokens_per_second", decimals(per_second(report.tokens, report.seconds))}};
}

Json score_json(const scoring::ScoreReport& report) {
  return {{"arithmetic", report.precision},  // "precision" is a metric of classes
          {"accuracy_of_arithmetic", report.accuracy},
          {"rows", report.rows},
          {"tokens", report.tokens},
          {"rows_cut", report.rows_cut},
          {"seconds", report.seconds},
          {"load_seconds", report.load_seconds}};
}

void run_predict(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::PredictConfig config;
  if (!parse_config(text, arguments, config, std::cout)) return;
  outlive_readers();
  const scoring::PredictReport report = tasks::predict(config);
  scoring::ScoreReport scored = report.score;
  scored.rows = report.rows_scored;
  scored.tokens = report.tokens_scored;
  std::vector<TableRow> rows = score_rows(scored);
  if (report.rows_scored < report.score.rows) rows.emplace_back("rows_in_output", count_text(report.score.rows));
  rows.emplace_back("seconds_waiting_for_input", decimals(report.seconds_waiting_for_input));
  rows.emplace_back("seconds_waiting_for_output", decimals(report.seconds_waiting_for_output));
  rows.emplace_back("output", report.output);
  rows.emplace_back("manifest", report.manifest);
  print_results("predict", rows, to_json(report), config.score.summary_json);
  if (!config.score.summary_json) finish_printing();
}

void run_worker(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::WorkerConfig config;
  if (parse_config(text, arguments, config, std::cout)) tasks::work(config);
}

void run_evaluate(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::EvaluateConfig config;
  if (!parse_config(text, arguments, config, std::cout)) return;
  const tasks::EvaluateReport report = tasks::evaluate(config);
  std::vector<TableRow> rows;
  Json summary = score_json(report.score);
  for (const auto& [name, value] : report.metrics) {
    rows.emplace_back(name, decimals(value));
    summary[name] = value;
  }
  for (const TableRow& row : score_rows(report.score)) rows.push_back(row);
  print_results("evaluate", rows, summary, config.score.summary_json);
}

void run_tokenize(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::TokenizeConfig config;
  if (parse_config(text, arguments, config, std::cout)) tasks::tokenize(config, std::cout);
}

void run_estimate(const VerbText& text, const std::vector<std::string>& arguments) {
  tasks::LaunchedRanks ranks;
  tasks::EstimateConfig config = tasks::estimate_defaults(ranks);
  bool goes_on = false;
  ranks.agree([&] {
    std::ostream nowhere(nullptr);
    goes_on = parse_config(text, arguments, config, ranks.speaks() ? std::cout : nowhere);
  });
  if (goes_on) tasks::estimate(config, ranks, std::cout);
}

constexpr const char* kEstimateExamples =
    "Examples:\n"
    "  strake estimate --model_name_or_path roberta-base --max_seq_length 256 --ranks 2\n"
    "  strake estimate --task causal-lm --model_type gpt2 --bf16 --ranks 8 --processes --ranks_per_machine 4 "
    "\\\n"
    "    --deepspeed '{\"zero_optimization\": {\"stage\": 3}}' --memory_limit 64\n"
    "  strake estimate ... --gflops 400 --memory_bandwidth 10 --bandwidth 1.25    speeds of a rank elsewhere\n"
    "  mpirun -n 4 strake estimate ...               of a run with four processes, which measure together\n"
    "The time of a step is estimated with speeds that are measured here in about a second, where no flag says\n"
    "them; what was measured and what was assumed is told. Start it as the run will be, on the machines of\n"
    "the run, and communication is what its processes measure between them.\n"
    "Exit code 2 if the run does not fit; the message names the nearest plan that does.";

constexpr const char* kEvaluateExamples =
    "Examples:\n"
    "  strake evaluate --model_name_or_path out --input test.parquet --text_column text --label_column label\n"
    "  strake evaluate --model_name_or_path reader --input dev.parquet --answers_column answers\n"
    "    exact match and F1 as of SQuAD\n"
    "  strake evaluate --model_name_or_path tagger --input test.parquet --text_column words --label_column "
    "tags\n"
    "    precision, recall and F1 of entities, of lists of words with labels\n"
    "  strake evaluate --model_name_or_path minilm --input sts.parquet --text_column a --text_pair_column b \\\n"
    "    --label_column score                          correlations of the vectors' cosine with a number\n"
    "  strake evaluate --model_name_or_path gpt2 --input texts.parquet      loss and perplexity\n"
    "  strake evaluate --model_name_or_path bert --input texts.parquet --task masked-lm     of masked tokens\n"
    "  strake evaluate ... --calibrate                 find out whether bf16 and int8 are near enough to fp32:\n"
    "    the same class for 99 % of the rows and an accuracy within 0.5 points (a Pearson correlation within\n"
    "    0.005); the same label for 99 % of the tokens and, with labelled words, an F1 within 0.005; the same\n"
    "    answer for 99 % of the rows and, with true answers, an F1 within 0.5 points; embeddings with a mean\n"
    "    cosine of 0.99 once fp32's mean is taken from them and, with numbers of pairs, a Spearman\n"
    "    correlation within 0.005. Linear layers stay in bf16 until int8 is. Takes some passes over the data;\n"
    "    of fewer than 500 rows --precision auto does not rely on it";

}  // namespace

std::span<const Verb> verbs() {
  static const std::array kVerbs{
      Verb{{"train", "Fine-tune or pre-train a BERT, RoBERTa or DistilBERT, or train a GPT-2 language model.",
            "Examples:\n"
            "  strake train --model_name_or_path roberta-base --train_file train.parquet --validation_file "
            "test.parquet \\\n"
            "    --text_column text --label_column label --eval_strategy epoch --output_dir out\n"
            "  strake train ... --bf16 --per_device_train_batch_size 32 --learning_rate 2e-5 --warmup_ratio 0.06\n"
            "  strake train --task causal-lm --model_name_or_path gpt2 --train_file texts.jsonl --output_dir out\n"
            "  strake train --task masked-lm --model_type bert --tokenizer_name bert --train_file texts.jsonl "
            "--output_dir out\n"
            "  strake train --task token-classification --model_name_or_path bert --train_file words.parquet \\\n"
            "    --text_column words --label_column tags --output_dir out\n"
            "  strake train --task question-answering --model_name_or_path bert --train_file squad.parquet "
            "--output_dir out\n"
            "  strake train ... --ranks 2                    two data-parallel ranks in this process\n"
            "  mpirun -n 4 strake train ...                  four processes\n"
            "  strake train ... --resume_from_checkpoint true"},
           &run_train},
      Verb{
          {"predict", "Score a table: all its columns plus prediction and probabilities, as Parquet.",
           "Examples:\n"
           "  strake predict --model_name_or_path out --input new.parquet --output scored.parquet --text_column text\n"
           "  strake predict ... --output scored/             a folder of files instead of one\n"
           "  strake predict ... --shard 2/8                  the third of eight parts: scored-00002-of-00008.parquet\n"
           "  strake predict ... --keep_columns id --output_columns prediction score\n"
           "  strake predict ... --task feature-extraction    embeddings, by mean or CLS pooling\n"
           "  strake predict ... --task question-answering    answers, where the columns question and context are\n"
           "  strake predict --model_name_or_path gpt2 ...    perplexity and loss of each text\n"
           "  strake predict ... --precision auto             int8 or bf16, where they are near enough to fp32\n"
           "A run that was interrupted goes on when it is started again with the same flags."},
          &run_predict},
      Verb{{"worker", "Score Arrow IPC batches from standard input to standard output, for Spark and other engines.",
            "Example:\n"
            "  strake worker --model_name_or_path out --text_column text --keep_columns id < batches.arrows\n"
            "One batch in, one batch out, with prediction and probabilities added, until the end of the stream."},
           &run_worker},
      Verb{{"evaluate", "Score a labelled table and print metrics, or compare precisions.", kEvaluateExamples},
           &run_evaluate},
      Verb{{"prepare", "Tokenize text into Parquet once, for many training runs.",
            "Example:\n"
            "  strake prepare --tokenizer roberta-base --input reviews.csv --text_column text --label_column label \\\n"
            "    --encoding cp1252 --output tokens.parquet\n"
            "  strake train --train_file tokens.parquet ..."},
           &run_prepare},
      Verb{{"tokenize", "Texts to tokens, or back with --decode, one JSON object a line.",
            "Examples:\n"
            "  strake tokenize --tokenizer roberta-base --input texts.jsonl\n"
            "  strake tokenize --tokenizer roberta-base --input ids.jsonl --decode --skip_special_tokens"},
           &run_tokenize},
      Verb{{"estimate", "Memory, time and communication of a training run, before it is started.", kEstimateExamples},
           &run_estimate}};
  return kVerbs;
}

}  // namespace strake::cli
