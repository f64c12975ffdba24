#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/zeros.h>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/models/encoder/question_answerer.h"
#include "strake/rows/answer_spans.h"
#include "strake/rows/answer_windows.h"
#include "strake/rows/known_tokens.h"
#include "strake/rows/squad_metrics.h"
#include "strake/tasks/train_job.h"

namespace strake::tasks {
namespace {

struct QuestionAnswererSetup {
  models::EncoderConfig model_config;
  JobInputs inputs;
  std::vector<rows::AnsweredRows> evaluated;
};

rows::TextOptions window_options(const TrainConfig& config, const QuestionAnswererSetup& setup) {
  rows::TextOptions text{.text_column = config.answers.question_column,
                         .text_pair_column = config.answers.context_column,
                         .encoding = config.text.encoding};
  text.max_seq_length = sequence_length(config, rows::kUsualWindow, setup.model_config, *setup.inputs.tokenizer);
  text.form = rows::RowForm::kWindows;
  text.strips_questions = true;
  text.doc_stride = rows::choose_doc_stride(config.answers.doc_stride, text.max_seq_length);
  return text;
}

// The first `most` rows; 0: all.
data::TableReader open_first(const std::vector<std::string>& files, const rows::LabelledQuestions& questions,
                             int64_t most) {
  data::TableReader input = rows::open_questions(files, questions);
  if (most > 0) input.limit_to(0, most);
  return input;
}

rows::AnswerWindows read_windows(data::TableReader& input, const rows::LabelledQuestions& questions,
                                 rows::KeepTables keep, const models::EncoderConfig& model, int workers) {
  const std::string file = input.files().front().string();
  rows::AnswerWindows windows = rows::encode_answers(input, questions, keep, workers);
  require(windows.dataset.size() > 0, ErrorKind::kData, "{} has no rows", file);
  rows::require_known_tokens(windows.dataset, model.vocab_size, file);
  rows::require_known_types(windows.dataset.has_pairs(), model, file);
  return windows;
}

QuestionAnswererSetup load_question_answerer_setup(const TrainConfig& config, int workers) {
  QuestionAnswererSetup setup{.model_config = models::read_encoder_config(config.model_name_or_path),
                              .inputs = {.tokenizer = load_tokenizer(config)},
                              .evaluated = {}};
  refuse_token_files(config, "questions, contexts and answers");
  require_known_metric(config.training, "question answering", {"exact_match", "f1"});
  const rows::TextOptions text = window_options(config, setup);
  setup.model_config.set_labels({"LABEL_0", "LABEL_1"}, std::nullopt);  // as Transformers calls two outputs
  const rows::LabelledQuestions questions{
      .tokenizer = setup.inputs.tokenizer, .options = text, .answers_column = config.answers.answers_column};
  data::TableReader train = open_first(config.train_file, questions, config.max_train_samples);
  std::optional<data::TableReader> validation;
  if (!config.validation_file.empty()) {
    validation.emplace(open_first(config.validation_file, questions, config.max_eval_samples));
  }
  setup.inputs.train = read_windows(train, questions, rows::KeepTables::kNo, setup.model_config, workers).dataset;
  if (validation) {
    rows::AnswerWindows windows =
        read_windows(*validation, questions, rows::KeepTables::kYes, setup.model_config, workers);
    setup.inputs.evaluation = std::move(windows.dataset);
    setup.evaluated = std::move(windows.tables);
  }
  return setup;
}

// The scores of rows, of which each rank finds a share.
class AnswerScores {
 public:
  AnswerScores(const std::vector<rows::AnsweredRows>& tables, const rows::AnswerRules& rules,
               const std::string& context_column)
      : tables_(tables), rules_(rules), context_column_(context_column) {}

  // In percent. `logits`: of all tokens, fp32 [T, 2]. Collective.
  monitor::NamedValues metrics(const at::Tensor& logits, comm::Comm& comm) const {
    const auto of_table = [](const rows::AnsweredRows& table) { return table.rows.num_rows(); };
    const int64_t count = std::transform_reduce(tables_.begin(), tables_.end(), int64_t{0}, std::plus<>(), of_table);
    at::Tensor scores = at::zeros({2 * count}, at::kDouble);
    auto* const exact = scores.mutable_data_ptr<double>();
    double* const f1 = exact + count;
    std::span<const float> rest(logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel()));
    int64_t i = 0;
    for (const rows::AnsweredRows& table : tables_) {
      const data::TextColumn contexts = table.rows.table.text(context_column_);
      for (int64_t row = 0; row < table.rows.num_rows(); ++row, ++i) {
        if (i % comm.size() != comm.rank()) continue;
        const rows::AnswerScore score = score_row(table, row, contexts[row], rest);
        exact[i] = score.exact_match;
        f1[i] = score.f1;
      }
      rest = rest.subspan(2 * static_cast<size_t>(table.rows.offsets.back()));
    }
    comm.all_reduce(scores);  // exact: each row was found by one rank, the others have zero
    const auto percent = [&](const double* values) {
      return 100 * std::accumulate(values, values + count, 0.0) / static_cast<double>(count);
    };
    return {{"exact_match", percent(exact)}, {"f1", percent(f1)}};
  }

 private:
  // `logits`: of the table's tokens and more. Without finite ones nothing is found.
  rows::AnswerScore score_row(const rows::AnsweredRows& table, int64_t row, std::string_view context,
                              std::span<const float> logits) const {
    const auto begin = 2 * static_cast<size_t>(table.rows.first_token(row));
    const auto end = 2 * static_cast<size_t>(table.rows.first_token(row + 1));
    const std::span<const float> of_row = logits.subspan(begin, end - begin);
    if (!std::ranges::all_of(of_row, [](float value) { return std::isfinite(value); })) return {};
    return rows::score_answer(rows::find_answers(table.rows, row, context, of_row, rules_).front().label,
                              table.answers[static_cast<size_t>(row)], rules_.squad_version());
  }

  const std::vector<rows::AnsweredRows>& tables_;
  const rows::AnswerRules& rules_;
  const std::string& context_column_;
};

class QuestionAnswererJob final : public TrainJob {
 public:
  QuestionAnswererJob(const TrainConfig& config, QuestionAnswererSetup setup)
      : TrainJob(config, std::move(setup.inputs)),
        model_(std::move(setup.model_config)),
        evaluated_(std::move(setup.evaluated)),
        rules_(config.answers.rules()),
        context_column_(config.answers.context_column) {
    training::freeze_parameters(model_, config.training.frozen);
  }

  const models::Model& model() const override { return model_; }
  std::string describe() const override {
    return fmt::format("{} with {} parameters, which finds answers", model_.config().model_type,
                       model_.num_parameters());
  }
  training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const override {
    training::Evaluation result =
        training::evaluate_question_answerer(model_, parameters, comm, evaluation_data(), eval_batch_size());
    const auto start = Clock::now();
    result.metrics = AnswerScores(evaluated_, rules_, context_column_).metrics(result.logits, comm);
    result.seconds += seconds_since(start);
    return result;
  }
  int64_t evaluation_bytes() const override {
    int64_t bytes = 0;
    for (const rows::AnsweredRows& table : evaluated_) bytes += rows::bytes_of(table, context_column_);
    return bytes;
  }
  Json evaluation_settings() const override {
    return {{"max_answer_length", rules_.max_answer_len},
            {"version_2_with_negative", rules_.impossible == rows::AnswerRules::Impossible::kAllowed}};
  }
  int64_t hidden_size() const override { return model_.config().hidden_size; }
  // Of each of its tokens.
  int64_t outputs_of_row() const override {
    return has_evaluation() ? 2 * (evaluation_data().total_tokens() / evaluation_data().size() + 1) : 0;
  }
  std::string config_json() const override { return models::question_answerer_json(model_.config(), "float32"); }

 private:
  models::QuestionAnswerer model_;
  std::vector<rows::AnsweredRows> evaluated_;
  rows::AnswerRules rules_;
  std::string context_column_;
};

}  // namespace

std::unique_ptr<TrainJob> make_question_answerer_job(const TrainConfig& config, int workers) {
  return std::make_unique<QuestionAnswererJob>(config, load_question_answerer_setup(config, workers));
}

}  // namespace strake::tasks
