#include "strake/scoring/scoring_model.h"

#include <algorithm>
#include <utility>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/data/label_lists.h"
#include "strake/models/layers/linear_products.h"
#include "strake/rows/sequence_length.h"
#include "strake/rows/word_rows.h"
#include "strake/tensors/compute_threads.h"

namespace strake::scoring {
namespace {

rows::TextOptions columns_of(const ScoreConfig& config, ScoringTask task) {
  rows::TextOptions text = config.text;
  if (task == ScoringTask::kCausalLm) text.label_column.clear();
  if (task == ScoringTask::kQuestionAnswering) {
    require(text.text_column == rows::TextOptions().text_column && text.text_pair_column.empty(), ErrorKind::kUsage,
            "question-answering reads --question_column and --context_column: leave out --text_column and "
            "--text_pair_column");
    text.text_column = config.task.answers.question_column_or_default();
    text.text_pair_column = config.task.answers.context_column_or_default();
  }
  const bool takes_pairs = task != ScoringTask::kTokenClassification && task != ScoringTask::kCausalLm;
  require(takes_pairs || text.text_pair_column.empty(), ErrorKind::kUsage,
          "--text_pair_column {}: {} looks at single texts", text.text_pair_column, to_string(task));
  text.validate();
  return text;
}

rows::TextOptions text_options(const ScoreConfig& config, const ScoringPlan& plan,
                               const tokenizers::Tokenizer& tokenizer) {
  const TaskHead& head = plan.task;
  const models::EncoderConfig& encoder = plan.encoder();
  rows::TextOptions text = plan.text;
  text.strips_texts = head.strips_texts;
  if (head.task == ScoringTask::kQuestionAnswering) {
    text.max_seq_length = rows::choose_sequence_length(config.max_seq_length, rows::kUsualWindow, encoder, tokenizer);
    text.form = rows::RowForm::kWindows;
    text.doc_stride = rows::choose_doc_stride(config.task.doc_stride, text.max_seq_length);
  } else {
    const int64_t usual = head.max_seq_length.value_or(text.max_seq_length);
    // sentence-transformers prefers its own length to the tokenizer's.
    const bool is_of_folder = head.max_seq_length && usual <= encoder.max_sequence_length() && !config.max_seq_length;
    text.max_seq_length =
        is_of_folder ? usual : rows::choose_sequence_length(config.max_seq_length, usual, encoder, tokenizer);
  }
  text.validate();
  return text;
}

ScoringPlan plan_language_scoring(const ScoreConfig& config) {
  const models::Gpt2Config model = models::read_gpt2_config(config.model_name_or_path);
  ScoringPlan plan{.config = model,
                   .task = language_task(config.task, model, config.model_name_or_path),
                   .text = columns_of(config, ScoringTask::kCausalLm)};
  require(!config.max_seq_length, ErrorKind::kUsage,
          "--max_seq_length: texts of a language model are not cut off but into pieces of --block_size tokens");
  require_language_flags(config);
  plan.text.max_seq_length = rows::choose_block_size(config.task.block_size.value_or(0), model);
  plan.text.doc_stride = config.task.doc_stride.value_or(0);
  require(plan.text.doc_stride < plan.text.max_seq_length, ErrorKind::kUsage,
          "--doc_stride {} must be less than --block_size {}", plan.text.doc_stride, plan.text.max_seq_length);
  plan.text.form = rows::RowForm::kPieces;
  return plan;
}

// Of the log's start.
void tell(const ScoringModel& model, const ScoreConfig& config) {
  const inference::MemoryUse memory = model.memory();
  const int threads = threads_per_rank(1);
  log::info("{}; {} thread{}; kernels {}; {}; {:.0f} MB of weights, {:.0f} MB for activations", model.task.text(),
            threads, threads == 1 ? "" : "s", config.gpu() ? model.kernels : describe_cpu(), model.precision,
            static_cast<double>(memory.weights) / 1e6, static_cast<double>(memory.activations) / 1e6);
  if (!config.gpu()) hint_at_gpus();
}

int32_t start_token_of(const tokenizers::Tokenizer& tokenizer, const std::string& folder) {
  const std::optional<int32_t> id = tokenizer.id_of_role("bos_token");
  require(id.has_value(), ErrorKind::kConfig,
          "{}: the tokenizer has no bos_token, which --add_start_token puts before a text", folder);
  require(tokenizer.spec().post_processor.added(false) == 0, ErrorKind::kConfig,
          "{}: the tokenizer adds special tokens to every text: leave out --add_start_token", folder);
  return *id;
}

// The products of training's layers. Only strake's own make a row's bits independent of the rows beside it.
std::string products_of_language_model(const ScoreConfig& config) {
  const models::layers::MatmulLibrary library = models::layers::matmul_library();
  std::string text = fmt::format(" and matrix products of {}", to_string(library));
  if (library == models::layers::MatmulLibrary::kStrake) return text;
  return text + fmt::format(" of {} tokens by {} threads", config.tokens_at_a_time(), threads_per_rank(1));
}

ScoringModel load_language_model(const ScoreConfig& config, const ScoringPlan& plan) {
  const auto start = Clock::now();
  const auto precision = config.precision.asks_for_bf16() ? inference::Precision::kBf16 : inference::Precision::kFp32;
  std::string kernels = kernels_of(config);
  if (!config.gpu()) kernels += products_of_language_model(config);
  auto tokenizer = tokenizers::Tokenizer::load(config.model_name_or_path);
  rows::TextOptions text = plan.text;
  if (config.task.add_start_token.value_or(false))
    text.start_token = start_token_of(*tokenizer, config.model_name_or_path);
  ScoringModel model{.computes = LanguageScorer(config, std::get<models::Gpt2Config>(plan.config), text),
                     .tokenizer = std::move(tokenizer),
                     .plan = {.precision = precision},
                     .task = plan.task,
                     .text = text,
                     .kernels = std::move(kernels),
                     .precision = inference::to_string(precision),
                     .accuracy = {}};
  model.load_seconds = seconds_since(start);
  tell(model, config);
  return model;
}

bool is_of_language_model(const ScoreConfig& config) {
  const std::string& task = config.task.task;
  return task == to_string(ScoringTask::kCausalLm) || (task.empty() && models::is_gpt2(config.model_name_or_path));
}

}  // namespace

ScoringPlan plan_scoring(const ScoreConfig& config) {
  if (is_of_language_model(config)) return plan_language_scoring(config);
  const models::EncoderConfig encoder = models::read_encoder_config(config.model_name_or_path);
  ScoringPlan plan{.config = encoder, .task = choose_task(config.task, encoder, config.model_name_or_path), .text = {}};
  plan.text = columns_of(config, plan.task.task);
  return plan;
}

void look_at_columns(ScoringPlan& plan, const TaskFlags& flags, const data::Table& none) {
  rows::TextOptions& text = plan.text;
  if (plan.task.task == ScoringTask::kTokenClassification && data::holds_lists(none, text.text_column)) {
    text.form = rows::RowForm::kWords;
    plan.task.label_words(flags);
  }
  rows::require_text_columns(none, text);
}

inference::MemoryUse ScoringModel::memory() const {
  return std::visit([](const auto& model) { return model.memory(); }, computes);
}

rows::Places ScoringModel::places() const {
  if (task.task == ScoringTask::kQuestionAnswering) return task.answers.places();
  if (task.task != ScoringTask::kTokenClassification) return rows::Places::kNone;
  return joins_words(task.entities.aggregation) ? rows::Places::kWithContinuations : rows::Places::kOfTokens;
}

ScoringModel load_scoring_model(const ScoreConfig& config, const ScoringPlan& plan) {
  const auto start = Clock::now();
  checkpoint::verify_model_files(config.model_name_or_path);
  const double verify_seconds = seconds_since(start);
  ScoringModel model = plan.task.task == ScoringTask::kCausalLm ? load_language_model(config, plan)
                                                                : load_verified_model(config, plan, std::nullopt);
  model.load_seconds += verify_seconds;
  return model;
}

ScoringModel load_verified_model(const ScoreConfig& config, const ScoringPlan& plan,
                                 const std::optional<inference::PrecisionPlan>& precision) {
  const auto start = Clock::now();
  const int threads = threads_per_rank(1);
  tensors::set_compute_threads(threads);
  const TaskHead& task = plan.task;
  const int64_t layers = plan.encoder().num_hidden_layers;
  auto tokenizer = tokenizers::Tokenizer::load(config.model_name_or_path);
  const rows::TextOptions text = text_options(config, plan, *tokenizer);
  require(
      task.task != ScoringTask::kQuestionAnswering || tokenizer->spec().padding_side == tokenizers::Direction::kRight,
      ErrorKind::kConfig,
      "{}: tokenizer_config.json: padding_side is left, for which Transformers' pipeline puts the context before "
      "the question; that is not there",
      config.model_name_or_path);
  if (text.form == rows::RowForm::kWords) rows::WordEncoder(*tokenizer, text);  // which looks at both
  const int64_t added = tokenizer->spec().post_processor.added(!text.text_pair_column.empty());
  require(text.max_seq_length >= added, ErrorKind::kUsage,
          "--max_seq_length {} is less than the {} special tokens that the tokenizer adds to every text",
          text.max_seq_length, added);
  const std::optional<int> gpu = config.gpu();
  const std::string kernels = kernels_of(config);
  const PrecisionChoice choice =
      precision
          ? PrecisionChoice{.plan = *precision, .accuracy = {}}
          : choose_precision(config.precision, {.folder = config.model_name_or_path,
                                                .num_layers = layers,
                                                .task = MeasuredTask::of(task),
                                                .with = MeasuredWith::of(*tokenizer, text.max_seq_length, kernels),
                                                .on_gpu = gpu.has_value()});
  ScoringModel model{
      .computes = inference::Engine(
          config.model_name_or_path, choice.plan,
          {.threads = threads,
           .tokens_at_a_time = config.tokens_at_a_time(),
           .longest_sequence = text.max_seq_length,
           .gpu = gpu},
          task.head, config.packed_weights == "off" ? inference::PackedWeights::kOff : inference::PackedWeights::kKept),
      .tokenizer = std::move(tokenizer),
      .plan = choice.plan,
      .task = task,
      .text = text,
      .kernels = kernels,
      .precision = describe(choice.plan, layers),
      .accuracy = choice.accuracy};
  model.load_seconds = seconds_since(start);
  tell(model, config);
  return model;
}

}  // namespace strake::scoring
