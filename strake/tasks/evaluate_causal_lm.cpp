#include "strake/tasks/evaluate_causal_lm.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/comm/comm.h"
#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/gpus.h"
#include "strake/tasks/causal_lm_config.h"
#include "strake/tasks/causal_lm_data.h"
#include "strake/tasks/checkpoint_weights.h"
#include "strake/tensors/compute_threads.h"
#include "strake/training/evaluator.h"
#include "strake/training/freezing.h"

namespace strake::tasks {
namespace {

constexpr int64_t kTokensAtATime = 8192;

void check_flags(const EvaluateConfig& config) {
  static const std::set<std::string> kKnown{"model_name_or_path", "input",  "text_column",          "encoding",  "task",
                                            "block_size",         "device", "max_tokens_per_batch", "precision", "bf16",
                                            "summary_json",       "config", "print_config"};
  require(!config.given.contains("max_seq_length"), ErrorKind::kUsage,
          "--max_seq_length: texts of a language model are not cut off but into pieces of --block_size tokens");
  for (const std::string& name : config.given) {
    require(kKnown.contains(name), ErrorKind::kUsage, "--{} is not of --task causal-lm, the task of {}", name,
            config.score.model_name_or_path);
  }
  const std::string& precision = config.score.precision.precision;
  require(precision.empty() || precision == "fp32" || precision == "bf16", ErrorKind::kUsage,
          "--precision {}: language models are evaluated in fp32 or bf16", precision);
  require(config.block_size.value_or(2) >= 2, ErrorKind::kUsage,
          "--block_size {} is not at least 2: a single token predicts nothing", config.block_size.value_or(0));
}

// As it computes: without gradients and optimizer.
training::TrainingOptions options_of(const ScoreConfig& config) {
  training::TrainingOptions options;
  options.bf16 = config.precision.bf16 || config.precision.precision == "bf16";
  options.gpu = config.gpu();
  return options;
}

struct Input {
  Split split;
  DocumentReading how;
};

// What is wrong with files, columns and block size is found here, before weights are loaded.
Input open_documents(const EvaluateConfig& config, const models::Gpt2Config& model) {
  const ScoreConfig& score = config.score;
  Input input{.split = {.paths = score.input},
              .how = {.tokenizer = tokenizers::Tokenizer::load(score.model_name_or_path),
                      .text_column = score.text.text_column,
                      .block_size = choose_block_size(config.block_size.value_or(0), model),
                      .vocab_size = model.vocab_size,
                      .workers = available_cores()}};
  if (are_token_files(score.input)) {
    require(!config.given.contains("text_column") && !config.given.contains("encoding"), ErrorKind::kUsage,
            "{} was made by strake prepare, which has read the text: leave out --text_column and --encoding",
            score.input.front());
  } else {
    input.split.tables.emplace(
        open_input(score.input, {.text_column = score.text.text_column, .encoding = score.text.encoding}));
  }
  return input;
}

Documents read(Input& input) {
  Documents documents = read_documents(input.split, input.how);
  if (documents.count_cut > 0) {
    log::info("{} of {} documents have more than {} tokens: their pieces do not see each other", documents.count_cut,
              documents.count, input.how.block_size);
  }
  return documents;
}

// Pieces that are computed at once, each as long as the longest.
int64_t batch_size(const ScoreConfig& config, const data::TokenDataset& pieces) {
  int64_t longest = 1;
  for (int64_t i = 0; i < pieces.size(); ++i) longest = std::max(longest, pieces.length(i));
  return std::max<int64_t>(1, config.max_tokens_per_batch.value_or(kTokensAtATime) / longest);
}

// Weights in the precision of the computation, ready on the device.
void load_all(const models::Gpt2& model, const std::filesystem::path& folder, training::ShardedParameters& parameters) {
  const std::vector<std::string> lacking = load_checkpoint({.model = model, .folder = folder}, parameters);
  require(lacking.empty(), ErrorKind::kConfig, "{} has no {}: these weights were never trained", folder.string(),
          fmt::join(lacking, ", "));
}

}  // namespace

bool evaluates_language_model(const EvaluateConfig& config) {
  const std::string& task = config.score.task.task;
  return task == kCausalLm || (task.empty() && models::is_gpt2(config.score.model_name_or_path));
}

EvaluateReport evaluate_causal_lm(const EvaluateConfig& config) {
  check_flags(config);
  const auto start = Clock::now();
  const ScoreConfig& score = config.score;
  const std::filesystem::path folder = score.model_name_or_path;
  const std::string kernels = kernels_of(score);
  const int threads = threads_per_rank(1);
  tensors::set_compute_threads(threads);
  const training::TrainingOptions options = options_of(score);
  if (options.gpu) models::use_gpu(*options.gpu);
  models::Gpt2 model(models::read_gpt2_config(folder), /*label_smoothing=*/0.0);
  training::freeze_all(model);
  Input input = open_documents(config, model.config());
  checkpoint::verify_model_files(folder);
  comm::SelfComm alone;
  training::ShardedParameters parameters(model, alone, options);
  load_all(model, folder, parameters);
  EvaluateReport report{.score = {.load_seconds = seconds_since(start), .precision = options.precision_text()}};
  log::info("causal-lm; gpt2 with {} parameters; {} thread{}; kernels {}; {}", model.num_parameters(), threads,
            threads == 1 ? "" : "s", options.gpu ? kernels : describe_cpu(), report.score.precision);
  if (!options.gpu) hint_at_gpus();

  const Documents documents = read(input);
  const training::Evaluation result = training::evaluate_language_model(model, parameters, alone, documents.pieces,
                                                                        batch_size(score, documents.pieces));
  require(std::isfinite(result.loss), ErrorKind::kNumeric,
          "{}: the loss is {}, not a finite number: are the weights of {} sound? In bf16, try --precision fp32",
          score.input.front(), result.loss, folder.string());
  report.score.rows = documents.count;
  report.score.tokens = documents.pieces.total_tokens();
  report.score.rows_cut = documents.count_cut;
  report.score.seconds = seconds_since(start) - report.score.load_seconds;
  report.metrics = {{"loss", result.loss}};
  report.metrics.insert(report.metrics.end(), result.metrics.begin(), result.metrics.end());
  return report;
}

}  // namespace strake::tasks
