#include "strake/tasks/evaluate_causal_lm.h"

#include <set>
#include <string>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/tasks/documents.h"
#include "strake/tasks/scoring_model.h"

namespace strake::tasks {
namespace {

// Those of encoders that predict and worker have, too, are refused by plan_scoring().
void check_flags(const EvaluateConfig& config) {
  for (const char* of_predict : {"doc_stride", "add_start_token"}) {
    require(!config.given.contains(of_predict), ErrorKind::kUsage,
            "--{} is of strake predict and strake worker: strake evaluate gives the numbers of a training run's "
            "evaluations",
            of_predict);
  }
  static const std::set<std::string> kKnown{"model_name_or_path", "input",  "text_column",          "encoding",  "task",
                                            "block_size",         "device", "max_tokens_per_batch", "precision", "bf16",
                                            "summary_json",       "config", "print_config"};
  for (const std::string& name : config.given) {
    require(kKnown.contains(name), ErrorKind::kUsage, "--{} is not of --task causal-lm, the task of {}", name,
            config.score.model_name_or_path);
  }
}

// What is wrong with files and columns is found here, before weights are loaded.
Split open_documents(const EvaluateConfig& config, const TextOptions& text) {
  const std::vector<std::string>& files = config.score.input;
  Split split{.paths = files};
  if (are_token_files(files)) {
    require(!config.given.contains("text_column") && !config.given.contains("encoding"), ErrorKind::kUsage,
            "{} was made by strake prepare, which has read the text: leave out --text_column and --encoding",
            files.front());
  } else {
    split.tables.emplace(open_input(files, text));
  }
  return split;
}

Documents read(Split& split, const ScoringModel& model, const models::Gpt2Config& config) {
  Documents documents = read_documents(split, {.tokenizer = model.tokenizer,
                                               .text_column = model.text.text_column,
                                               .pieces = {.block_size = model.text.max_seq_length},
                                               .vocab_size = config.vocab_size,
                                               .workers = available_cores()});
  tell_cut_rows(documents.count_cut, model.text);
  return documents;
}

}  // namespace

EvaluateReport evaluate_causal_lm(const EvaluateConfig& config, const ScoringPlan& plan) {
  check_flags(config);
  Split split = open_documents(config, plan.text);
  ScoringModel model = load_scoring_model(config.score, plan);
  auto& language = std::get<LanguageScorer>(model.computes);
  const auto start = Clock::now();
  const Documents documents = read(split, model, language.config());
  const training::Evaluation result = language.evaluate(documents.pieces, config.score.input.front());
  EvaluateReport report{.score = {.rows = documents.count,
                                  .tokens = documents.pieces.total_tokens(),
                                  .rows_cut = documents.count_cut,
                                  .load_seconds = model.load_seconds,
                                  .seconds = seconds_since(start),
                                  .precision = model.precision}};
  report.metrics = {{"loss", result.loss}};
  report.metrics.insert(report.metrics.end(), result.metrics.begin(), result.metrics.end());
  return report;
}

}  // namespace strake::tasks
