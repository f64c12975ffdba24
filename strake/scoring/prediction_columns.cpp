#include "strake/scoring/prediction_columns.h"

#include <ATen/ops/softmax.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/scoring/text_loss.h"

namespace strake::scoring {
namespace {

constexpr std::array<std::string_view, 5> kOfClasses{"prediction", "probabilities", "logits", "label_id", "score"};
constexpr std::array<std::string_view, 1> kOfFeatures{"embedding"};
constexpr std::array<std::string_view, 1> kOfTokens{"entities"};
constexpr std::array<std::string_view, 2> kOfWords{"prediction", "score"};
constexpr std::array<std::string_view, 5> kOfAnswers{"answer", "score", "start", "end", "answers"};
constexpr size_t kOfOneAnswer = 4;  // of these
constexpr std::array<std::string_view, 3> kOfLosses{"perplexity", "loss", "predicted_tokens"};
constexpr size_t kUsualLosses = 2;  // of these

bool labels_words(const TaskHead& head) {
  return head.task == ScoringTask::kTokenClassification && head.entities.of == EntityRules::Of::kWords;
}

std::span<const std::string_view> names_of(const TaskHead& head) {
  if (labels_words(head)) return kOfWords;
  if (head.task == ScoringTask::kFeatureExtraction) return kOfFeatures;
  if (head.task == ScoringTask::kTokenClassification) return kOfTokens;
  if (head.task == ScoringTask::kQuestionAnswering) return kOfAnswers;
  if (head.task == ScoringTask::kCausalLm) return kOfLosses;
  return kOfClasses;
}

// The name that occurs twice, or null.
const std::string* repeated(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) return &*name;
  }
  return nullptr;
}

data::FloatRows rows_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const auto* data = values.const_data_ptr<float>();
  return {.values = {data, data + values.numel()}, .width = values.size(1)};
}

// Number by number: at::sigmoid gives a number other bits in a vector than behind the last one, and so in other
// company.
data::FloatRows sigmoids_of(data::FloatRows numbers) {
  for (float& number : numbers.values) number = 1 / (1 + std::exp(-number));
  return numbers;
}

}  // namespace

void check_output_columns(const std::vector<std::string>& names) {
  std::vector<std::string> known(kOfClasses.begin(), kOfClasses.end());
  known.insert(known.end(), kOfFeatures.begin(), kOfFeatures.end());
  known.insert(known.end(), kOfTokens.begin(), kOfTokens.end());
  for (const std::string_view name : kOfAnswers) {
    if (name != "score") known.emplace_back(name);  // classes have one
  }
  known.insert(known.end(), kOfLosses.begin(), kOfLosses.end());
  for (const std::string& name : names) {
    require(std::ranges::find(known, name) != known.end(), ErrorKind::kUsage,
            "--output_columns {}: the columns are {}{}", printable(name), fmt::join(known, ", "),
            did_you_mean(name, known));
  }
  const std::string* twice = repeated(names);
  require(twice == nullptr, ErrorKind::kUsage, "--output_columns: '{}' is named twice", twice ? *twice : "");
}

PredictionColumns::PredictionColumns(const std::vector<std::string>& names, const TaskHead& task)
    : names_(names), task_(task.task), classes_(task.classes) {
  check_output_columns(names);
  const std::span<const std::string_view> known = names_of(task);
  for (const std::string& name : names) {
    require(std::ranges::find(known, name) != known.end(), ErrorKind::kUsage,
            "--output_columns {}: the task is {}{}, which has {}", name, to_string(task_),
            labels_words(task) ? " of lists of words" : "", fmt::join(known, ", "));
    if (task_ != ScoringTask::kTextClassification) continue;
    const bool is_of_numbers =
        name == "prediction" || name == "logits" || (name == "score" && !classes_.is_problem_named);
    require(classes_.problem != models::ProblemType::kRegression || is_of_numbers, ErrorKind::kUsage,
            "--output_columns {}: the model is a regression, which has prediction{}logits", name,
            classes_.is_problem_named ? " and " : ", score and ");
    const bool is_of_one_label = name == "label_id" || name == "score";
    require(classes_.problem != models::ProblemType::kMultiLabelClassification || !is_of_one_label, ErrorKind::kUsage,
            "--output_columns {}: the model gives a text any number of labels (multi_label_classification), which has "
            "prediction, probabilities and logits",
            name);
  }
  if (!names_.empty()) return;
  if (task_ == ScoringTask::kQuestionAnswering) {
    const auto defaults = task.answers.top_k == 1 ? known.first(kOfOneAnswer) : known.subspan(kOfOneAnswer);
    names_.assign(defaults.begin(), defaults.end());
    return;
  }
  if (task_ == ScoringTask::kCausalLm) {
    names_.assign(known.begin(), known.begin() + kUsualLosses);
    return;
  }
  names_ = {std::string(known.front())};
  if (task_ == ScoringTask::kTextClassification && classes_.problem != models::ProblemType::kRegression) {
    names_.emplace_back("probabilities");
  }
}

void PredictionColumns::require_new(const std::vector<std::string>& input, const KeptColumns& kept,
                                    const std::string& file) const {
  const std::vector<std::string>& handed_on = kept.all() ? input : kept.names();
  for (const std::string& name : names_) {
    require(std::ranges::find(handed_on, name) == handed_on.end(), ErrorKind::kData,
            "{}: the column '{}' that would be added already exists; rename or drop it, or leave it out with "
            "--keep_columns, or name other --output_columns",
            file, name);
  }
}

std::vector<data::ExtraColumn> PredictionColumns::of(const ScoredRows& rows) const {
  if (const auto* spans = std::get_if<data::SpanRows>(&rows)) {
    if (task_ == ScoringTask::kQuestionAnswering) return of_answers(*spans);
    return {{names_.front(), data::SpanLists{*spans, "entity"}}};
  }
  if (const auto* words = std::get_if<WordLabels>(&rows)) return of_words(*words);
  const auto& numbers = std::get<at::Tensor>(rows);
  if (task_ == ScoringTask::kCausalLm) return of_losses(numbers);
  if (task_ != ScoringTask::kTextClassification) return {{names_.front(), rows_of(numbers)}};
  if (classes_.problem == models::ProblemType::kRegression) return of_numbers(numbers);
  return classes_.problem == models::ProblemType::kMultiLabelClassification ? of_labels(numbers) : of_classes(numbers);
}

std::vector<data::ExtraColumn> PredictionColumns::of_numbers(const at::Tensor& logits) const {
  std::vector<data::ExtraColumn> columns;
  const data::FloatRows numbers = rows_of(logits);
  for (const std::string& name : names_) {
    if (name == "logits") columns.emplace_back(name, numbers);
    if (name == "prediction") columns.emplace_back(name, numbers.values);
    if (name == "score") columns.emplace_back(name, sigmoids_of(numbers).values);
  }
  return columns;
}

// A label is given where its probability is above a half, as Transformers' run_classification.py gives it.
std::vector<data::ExtraColumn> PredictionColumns::of_labels(const at::Tensor& logits) const {
  const data::FloatRows numbers = rows_of(logits);
  data::TextLists given(static_cast<size_t>(logits.size(0)));
  for (size_t row = 0; row < given.size(); ++row) {
    for (size_t id = 0; id < classes_.labels.size(); ++id) {
      if (numbers.values[row * classes_.labels.size() + id] > 0) given[row].push_back(classes_.labels[id]);
    }
  }
  std::vector<data::ExtraColumn> columns;
  for (const std::string& name : names_) {
    if (name == "prediction") columns.emplace_back(name, given);
    if (name == "probabilities") columns.emplace_back(name, sigmoids_of(numbers));
    if (name == "logits") columns.emplace_back(name, numbers);
  }
  return columns;
}

std::vector<data::ExtraColumn> PredictionColumns::of_classes(const at::Tensor& logits) const {
  std::vector<data::ExtraColumn> columns;
  const at::Tensor probabilities = at::softmax(logits, 1).contiguous();
  const at::Tensor best = logits.argmax(1).contiguous();
  std::vector<std::string> predictions;
  std::vector<int32_t> ids;
  std::vector<float> scores;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const int64_t id = best.const_data_ptr<int64_t>()[row];
    ids.push_back(static_cast<int32_t>(id));
    predictions.push_back(classes_.labels[static_cast<size_t>(id)]);
    scores.push_back(probabilities.const_data_ptr<float>()[row * logits.size(1) + id]);
  }
  for (const std::string& name : names_) {
    if (name == "prediction") columns.emplace_back(name, predictions);
    if (name == "probabilities") columns.emplace_back(name, rows_of(probabilities));
    if (name == "logits") columns.emplace_back(name, rows_of(logits));
    if (name == "label_id") columns.emplace_back(name, ids);
    if (name == "score") columns.emplace_back(name, scores);
  }
  return columns;
}

std::vector<data::ExtraColumn> PredictionColumns::of_answers(const data::SpanRows& rows) const {
  const auto of_best = [&rows](const auto& member) {
    std::vector<std::decay_t<decltype(member(rows.front().front()))>> values;
    for (const std::vector<data::LabelledSpan>& answers : rows) values.push_back(member(answers.front()));
    return values;
  };
  std::vector<data::ExtraColumn> columns;
  for (const std::string& name : names_) {
    if (name == "answer") columns.emplace_back(name, of_best([](const auto& best) { return best.label; }));
    if (name == "score") columns.emplace_back(name, of_best([](const auto& best) { return best.score; }));
    if (name == "start") columns.emplace_back(name, of_best([](const auto& best) { return best.begin; }));
    if (name == "end") columns.emplace_back(name, of_best([](const auto& best) { return best.end; }));
    if (name == "answers") columns.emplace_back(name, data::SpanLists{rows, "answer"});
  }
  return columns;
}

std::vector<data::ExtraColumn> PredictionColumns::of_words(const WordLabels& words) const {
  std::vector<data::ExtraColumn> columns;
  for (const std::string& name : names_) {
    if (name == "prediction") columns.emplace_back(name, words.names);
    if (name == "score") columns.emplace_back(name, words.scores);
  }
  return columns;
}

std::vector<data::ExtraColumn> PredictionColumns::of_losses(const at::Tensor& numbers) const {
  std::vector<std::optional<float>> losses;
  std::vector<std::optional<float>> perplexities;
  std::vector<int32_t> counts;
  for (int64_t row = 0; row < numbers.size(0); ++row) {
    const TextLoss found = get_loss(numbers.const_data_ptr<float>() + row * kNumbersPerLoss);
    counts.push_back(found.predicted_tokens);
    const bool is_known = found.predicted_tokens > 0;
    losses.push_back(is_known ? std::optional(found.loss) : std::nullopt);
    perplexities.push_back(is_known ? std::optional(std::exp(found.loss)) : std::nullopt);
  }
  std::vector<data::ExtraColumn> columns;
  for (const std::string& name : names_) {
    if (name == "perplexity") columns.emplace_back(name, perplexities);
    if (name == "loss") columns.emplace_back(name, losses);
    if (name == "predicted_tokens") columns.emplace_back(name, counts);
  }
  return columns;
}

KeptColumns::KeptColumns(const std::vector<std::string>& names) : names_(names), all_(names.empty()) {
  if (names_ == std::vector<std::string>{""}) names_.clear();
  const std::string* twice = repeated(names_);
  require(twice == nullptr, ErrorKind::kUsage, "--keep_columns: '{}' is named twice", twice ? printable(*twice) : "");
}

}  // namespace strake::scoring
