#include "strake/tasks/evaluate_language_model.h"

#include <cmath>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/models/encoder/masked_language_model.h"
#include "strake/rows/sequence_length.h"
#include "strake/scoring/frozen_language_model.h"
#include "strake/scoring/scoring_model.h"
#include "strake/tasks/documents.h"
#include "strake/tasks/masked_lm_config.h"

namespace strake::tasks {
namespace {

constexpr const char* kMaskedLm = "masked-lm";

// `more`: what is of this task beside what all have.
void require_flags_of(const EvaluateConfig& config, const std::string& task, const std::set<std::string>& more) {
  static const std::set<std::string> kCommon{
      "model_name_or_path",   "input",     "text_column", "encoding",     "task",   "device",
      "max_tokens_per_batch", "precision", "bf16",        "summary_json", "config", "print_config",
      "packed_weights"};
  for (const std::string& name : config.given) {
    require(kCommon.contains(name) || more.contains(name), ErrorKind::kUsage,
            "--{} is not of --task {}, the task of {}", name, task, config.score.model_name_or_path);
  }
}

// Whether tokens are predicted from others than in a training run's evaluations.
bool has_more_context(const rows::TextOptions& text) { return text.doc_stride > 0 || text.start_token; }

void check_masked_flags(const EvaluateConfig& config) {
  require_flags_of(config, kMaskedLm, {"max_seq_length", "mlm_probability"});
  scoring::require_language_flags(config.score);
  require_mlm_probability(config.mlm_probability);
  if (config.score.max_seq_length) require_masked_piece(*config.score.max_seq_length);
}

// What is wrong with files and columns is found here, before weights are loaded.
Split open_documents(const EvaluateConfig& config, const rows::TextOptions& text) {
  const std::vector<std::string>& files = config.score.input;
  Split split{.paths = files};
  if (are_token_files(files)) {
    require(!config.given.contains("text_column") && !config.given.contains("encoding"), ErrorKind::kUsage,
            "{} was made by strake prepare, which has read the text: leave out --text_column and --encoding",
            files.front());
  } else {
    split.tables.emplace(rows::open_input(files, text));
  }
  return split;
}

EvaluateReport report_of(const Documents& documents, const training::Evaluation& result) {
  EvaluateReport report{
      .score = {.rows = documents.count, .tokens = documents.pieces.total_tokens(), .rows_cut = documents.count_cut},
      .metrics = {{"loss", result.loss}}};
  report.metrics.insert(report.metrics.end(), result.metrics.begin(), result.metrics.end());
  return report;
}

EvaluateReport evaluate_documents(const EvaluateConfig& config, scoring::ScoringModel& model, Split& split) {
  auto& language = std::get<scoring::LanguageScorer>(model.computes);
  const Documents documents = read_documents(split, {.tokenizer = model.tokenizer,
                                                     .text_column = model.text.text_column,
                                                     .pieces = {.block_size = model.text.max_seq_length},
                                                     .vocab_size = language.config().vocab_size,
                                                     .workers = available_cores()});
  rows::tell_cut_rows(documents.count_cut, model.text);
  return report_of(documents, language.evaluate(documents.pieces, config.score.input.front()));
}

// All predicted tokens of all texts, each as strake predict has it.
EvaluateReport evaluate_texts(const EvaluateConfig& config, scoring::ScoringModel& model, data::TableReader& input) {
  EvaluateReport report;
  double nll = 0;
  int64_t targets = 0;
  rows::for_each_encoded(input, {model.tokenizer, model.text}, scoring::tokenizing_threads(config.score),
                         [&](const rows::EncodedRows& rows) {
                           const at::Tensor losses =
                               std::get<scoring::LanguageScorer>(model.computes).losses(rows, 0, rows.num_rows());
                           for (int64_t row = 0; row < rows.num_rows(); ++row) {
                             const scoring::TextLoss found =
                                 scoring::get_loss(losses.const_data_ptr<float>() + row * scoring::kNumbersPerLoss);
                             nll += static_cast<double>(found.loss) * found.predicted_tokens;
                             targets += found.predicted_tokens;
                           }
                           report.score.rows += rows.num_rows();
                           report.score.tokens += std::ssize(rows.ids);
                           report.score.rows_cut += std::ssize(rows.cut_rows);
                         });
  require(targets > 0, ErrorKind::kData, "{} has no document of two tokens or more", config.score.input.front());
  rows::tell_cut_rows(report.score.rows_cut, model.text);
  const double loss = nll / static_cast<double>(targets);
  report.metrics = {{"loss", loss}, {"perplexity", std::exp(loss)}};
  return report;
}

}  // namespace

EvaluateReport evaluate_causal_lm(const EvaluateConfig& config, const scoring::ScoringPlan& plan) {
  // Those of encoders that predict and worker have, too, are refused by plan_scoring().
  require_flags_of(config, to_string(scoring::ScoringTask::kCausalLm), {"block_size", "doc_stride", "add_start_token"});
  Split split = open_documents(config, plan.text);
  for (const char* of_texts : {"doc_stride", "add_start_token"}) {
    require(split.tables || !config.given.contains(of_texts), ErrorKind::kUsage,
            "{} was made by strake prepare, and --{} is of texts", config.score.input.front(), of_texts);
  }
  scoring::ScoringModel model = scoring::load_scoring_model(config.score, plan);
  const auto start = Clock::now();
  EvaluateReport report = has_more_context(model.text) ? evaluate_texts(config, model, *split.tables)
                                                       : evaluate_documents(config, model, split);
  report.score.load_seconds = model.load_seconds;
  report.score.seconds = seconds_since(start);
  report.score.precision = model.precision;
  return report;
}

bool is_masked_lm(const EvaluateConfig& config) { return config.score.task.task == kMaskedLm; }

EvaluateReport evaluate_masked_lm(const EvaluateConfig& config) {
  scoring::ScoreConfig score = config.score;
  score.task = {};  // it is none of those that are known there
  score.validate();
  check_masked_flags(config);
  const auto start = Clock::now();
  const rows::TextOptions text{.text_column = score.text.text_column, .encoding = score.text.encoding};
  Split split = open_documents(config, text);
  checkpoint::verify_model_files(score.model_name_or_path);
  const models::EncoderConfig encoder = models::read_encoder_config(score.model_name_or_path);
  const auto tokenizer = tokenizers::Tokenizer::load(score.model_name_or_path);
  const models::TokenMasking masking = masking_of(config.mlm_probability, *tokenizer, encoder.vocab_size);
  const int64_t length = rows::choose_sequence_length(
      score.max_seq_length, rows::default_block_size(encoder.max_sequence_length()), encoder, *tokenizer);
  const rows::PieceShape pieces{.block_size = length, .ends = rows::ends_of(*tokenizer)};
  scoring::FrozenLanguageModel model(score, std::make_unique<models::MaskedLanguageModel>(encoder, masking));
  const double load_seconds = seconds_since(start);
  const Documents documents = read_documents(split, {.tokenizer = tokenizer,
                                                     .text_column = text.text_column,
                                                     .pieces = pieces,
                                                     .vocab_size = encoder.vocab_size,
                                                     .workers = available_cores()});
  EvaluateReport report = report_of(documents, model.evaluate(documents.pieces, score.input.front()));
  report.score.load_seconds = load_seconds;
  report.score.seconds = seconds_since(start) - load_seconds;
  report.score.precision = score.precision.asks_for_bf16() ? "bf16" : "fp32";
  return report;
}

}  // namespace strake::tasks
