#include "strake/scoring/scoring_task.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/core/log.h"
#include "strake/core/nearest_name.h"
#include "strake/models/config_values.h"
#include "strake/scoring/sentence_transformer.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

using inference::PooledHead;
using inference::Pooling;

constexpr std::array kTasks{ScoringTask::kTextClassification, ScoringTask::kTokenClassification,
                            ScoringTask::kQuestionAnswering, ScoringTask::kFeatureExtraction, ScoringTask::kCausalLm};

ScoringTask parse_task(const std::string& name) {
  if (const auto task = find_task(name)) return *task;
  std::vector<std::string> known;
  for (const ScoringTask task : kTasks) known.emplace_back(to_string(task));
  fail(ErrorKind::kUsage, "--task {}: the tasks that strake scores are {}{}", printable(name), fmt::join(known, ", "),
       did_you_mean(name, known));
}

// Empty: the one for no flag.
Aggregation parse_aggregation(const std::string& name) {
  if (name.empty()) return Aggregation::kSimple;
  constexpr std::array kKnown{Aggregation::kNone, Aggregation::kSimple, Aggregation::kFirst, Aggregation::kAverage,
                              Aggregation::kMax};
  const auto* const found = std::ranges::find_if(kKnown, [&](Aggregation known) { return name == to_string(known); });
  require(found != kKnown.end(), ErrorKind::kUsage,
          "--aggregation_strategy {}: those of Transformers are none, simple, first, average and max", printable(name));
  return *found;
}

// Nothing for an encoder without a head, or with one of a task that strake does not score.
std::optional<ScoringTask> task_of(const std::string& architecture) {
  if (architecture.ends_with("ForSequenceClassification")) return ScoringTask::kTextClassification;
  if (architecture.ends_with("ForTokenClassification")) return ScoringTask::kTokenClassification;
  if (architecture.ends_with("ForQuestionAnswering")) return ScoringTask::kQuestionAnswering;
  return std::nullopt;
}

bool has_other_head(const std::string& architecture) { return architecture.ends_with("ForMultipleChoice"); }

// Regressions, cross-encoders and mistakes have one.
void tell_of_one_label(const models::EncoderConfig& config, const fs::path& folder) {
  if (config.num_labels() != 1 || config.problem_type == models::ProblemType::kRegression ||
      config.problem_type == models::ProblemType::kMultiLabelClassification) {
    return;
  }
  if (config.problem_type) {
    log::warning("{}: a classifier of one label: its probability is 1 for every text", folder.string());
  } else {
    log::info(
        "{}: one label and no problem_type: predictions are the model's own numbers, as of a regression; a "
        "cross-encoder's score is their sigmoid (--output_columns score)",
        folder.string());
  }
}

PooledHead choose_pooling(const TaskFlags& flags, const SentenceTransformer& model) {
  PooledHead head;
  head.pooling = flags.pooling.empty() ? model.pooling.value_or(head.pooling) : *parse_pooling(flags.pooling);
  if (flags.normalize.value_or(model.normalizes)) head.length = PooledHead::Length::kOne;
  return head;
}

void refuse_flags_of_others(const TaskFlags& flags, ScoringTask task) {
  const auto check = [task](ScoringTask of, bool is_given, std::string_view flag) {
    require(!is_given || task == of, ErrorKind::kUsage, "{} of --task {}, and the task is {}", flag, to_string(of),
            to_string(task));
  };
  check(ScoringTask::kFeatureExtraction, !flags.pooling.empty() || flags.normalize, "--pooling and --normalize are");
  check(ScoringTask::kTokenClassification, !flags.aggregation_strategy.empty(), "--aggregation_strategy is");
  const std::string of_answers = flags.answers.first_given();
  check(ScoringTask::kQuestionAnswering, !of_answers.empty(), of_answers + " is");
  check(ScoringTask::kCausalLm, flags.block_size.has_value(), "--block_size is");
  check(ScoringTask::kCausalLm, flags.add_start_token.has_value(), "--add_start_token is");
  const bool has_stride = task == ScoringTask::kQuestionAnswering || task == ScoringTask::kCausalLm;
  require(has_stride || !flags.doc_stride, ErrorKind::kUsage,
          "--doc_stride is of --task question-answering and causal-lm, and the task is {}", to_string(task));
}

}  // namespace

const char* to_string(ScoringTask task) {
  switch (task) {
    case ScoringTask::kTextClassification:
      return "text-classification";
    case ScoringTask::kTokenClassification:
      return "token-classification";
    case ScoringTask::kQuestionAnswering:
      return "question-answering";
    case ScoringTask::kCausalLm:
      return "causal-lm";
    default:
      return "feature-extraction";
  }
}

std::optional<ScoringTask> find_task(std::string_view name) {
  const auto* const found = std::ranges::find_if(kTasks, [&](ScoringTask task) { return name == to_string(task); });
  return found == kTasks.end() ? std::nullopt : std::optional(*found);
}

const char* to_string(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::kNone:
      return "none";
    case Aggregation::kSimple:
      return "simple";
    case Aggregation::kFirst:
      return "first";
    case Aggregation::kAverage:
      return "average";
    case Aggregation::kMax:
      return "max";
  }
  return "";
}

void TaskFlags::validate() const {
  if (!task.empty()) parse_task(task);
  require(pooling.empty() || parse_pooling(pooling), ErrorKind::kUsage, "--pooling {}: mean and cls are supported",
          printable(pooling));
  parse_aggregation(aggregation_strategy);
  answers.validate();
  require(!doc_stride || *doc_stride >= 0, ErrorKind::kUsage, "--doc_stride {} is negative", doc_stride.value_or(0));
}

std::string TaskHead::text() const {
  std::string text = to_string(task);
  if (const auto* pooled = std::get_if<PooledHead>(&head)) {
    text += pooled->pooling == Pooling::kMean ? ", mean pooling" : ", cls pooling";
    if (pooled->length == PooledHead::Length::kOne) text += ", length 1";
  }
  if (task == ScoringTask::kTokenClassification) {
    const bool of_words = entities.of == EntityRules::Of::kWords;
    text += of_words ? ", labels" : entities.aggregation == Aggregation::kNone ? ", tokens" : ", entities";
    if (joins_words(entities.aggregation)) text += fmt::format(" of words by {}", to_string(entities.aggregation));
  }
  if (task == ScoringTask::kQuestionAnswering) {
    text += fmt::format(", answers of at most {} tokens{}{}", answers.max_answer_len,
                        answers.ends == rows::AnswerRules::Ends::kWords ? " and whole words" : "",
                        answers.impossible == rows::AnswerRules::Impossible::kAllowed ? ", or none" : "");
    if (answers.top_k > 1) text += fmt::format(", the best {}", answers.top_k);
  }
  return text;
}

TaskHead choose_task(const TaskFlags& flags, const models::EncoderConfig& config, const fs::path& folder) {
  TaskHead chosen;
  const std::string architecture = models::architecture_of(config.document);
  const std::optional<ScoringTask> trained = task_of(architecture);
  if (!flags.task.empty()) {
    chosen.task = parse_task(flags.task);
  } else if (is_there(folder / "modules.json")) {
    chosen.task = ScoringTask::kFeatureExtraction;
  } else if (trained) {
    chosen.task = *trained;
  }
  const bool pools = chosen.task == ScoringTask::kFeatureExtraction;
  refuse_flags_of_others(flags, chosen.task);
  require(pools || !trained || *trained == chosen.task, ErrorKind::kConfig, "{} holds a {}, whose task is {}, not {}",
          folder.string(), printable(architecture), to_string(trained.value_or(chosen.task)), to_string(chosen.task));
  require(pools || !has_other_head(architecture), ErrorKind::kConfig,
          "{} holds a {}, whose head strake does not compute; --task feature-extraction takes the encoder alone",
          folder.string(), printable(architecture));
  if (chosen.task == ScoringTask::kTextClassification) {
    rows::require_one_number(config);
    tell_of_one_label(config, folder);
    chosen.classes = {config.labels, config.problem(), config.problem_type.has_value()};
  }
  if (chosen.task == ScoringTask::kQuestionAnswering) {
    chosen.head = inference::TokenHead{.checkpoint_name = "qa_outputs", .outputs = 2};
    chosen.answers = flags.answers.rules();
  }
  if (pools) {
    const SentenceTransformer model = read_sentence_transformer(folder, flags.pooling.empty());
    chosen.head = choose_pooling(flags, model);
    chosen.max_seq_length = model.max_seq_length;
    chosen.strips_texts = model.strips_texts;
  }
  if (chosen.task == ScoringTask::kTokenClassification) {
    chosen.head = inference::TokenHead{.checkpoint_name = "classifier", .outputs = config.num_labels()};
    chosen.entities = {.labels = config.labels, .aggregation = parse_aggregation(flags.aggregation_strategy)};
  }
  return chosen;
}

void TaskHead::label_words(const TaskFlags& flags) {
  if (flags.aggregation_strategy.empty()) entities.aggregation = Aggregation::kFirst;
  require(joins_words(entities.aggregation), ErrorKind::kUsage,
          "--aggregation_strategy {} is of texts: the words of a list have the label of their first token (first), of "
          "all (average) or of their surest one (max)",
          to_string(entities.aggregation));
  entities.of = EntityRules::Of::kWords;
}

TaskHead language_task(const TaskFlags& flags, const models::Gpt2Config& config, const fs::path& folder) {
  const std::string architecture = models::architecture_of(config.document);
  require(!flags.task.empty() || !task_of(architecture), ErrorKind::kConfig,
          "{}/config.json: {} is not supported; --task causal-lm scores texts as its language model, without that head",
          folder.string(), printable(architecture));
  refuse_flags_of_others(flags, ScoringTask::kCausalLm);
  require(flags.block_size.value_or(2) >= 2, ErrorKind::kUsage,
          "--block_size {} is not at least 2: a single token predicts nothing", flags.block_size.value_or(0));
  TaskHead chosen;
  chosen.task = ScoringTask::kCausalLm;
  return chosen;
}

}  // namespace strake::scoring
