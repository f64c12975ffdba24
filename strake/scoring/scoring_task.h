#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strake/inference/head.h"
#include "strake/models/encoder/config.h"
#include "strake/models/gpt2/config.h"
#include "strake/rows/answer_flags.h"
#include "strake/rows/answer_spans.h"

namespace strake::scoring {

// What is computed for a row; the names are those of Transformers' pipelines, but for causal-lm.
enum class ScoringTask {
  kTextClassification,
  kTokenClassification,
  kQuestionAnswering,
  kFeatureExtraction,
  kCausalLm  // of a language model, how well it predicts the text
};

const char* to_string(ScoringTask task);  // "text-classification", ...
std::optional<ScoringTask> find_task(std::string_view name);

// How entities are made of tokens; the names are those of Transformers' aggregation strategies.
enum class Aggregation { kNone, kSimple, kFirst, kAverage, kMax };
const char* to_string(Aggregation aggregation);
// The tokens of a word are given one label before entities are made.
constexpr bool joins_words(Aggregation aggregation) { return aggregation > Aggregation::kSimple; }

struct EntityRules {
  enum class Of { kTexts, kWords };  // parts of texts, or all words of a list

  std::vector<std::string> labels;  // in order of id
  Aggregation aggregation = Aggregation::kSimple;
  Of of = Of::kTexts;
};

// Flags of verbs that score with more than classifiers.
struct TaskFlags {
  std::string task;
  std::string pooling;
  std::optional<bool> normalize;
  std::string aggregation_strategy;
  rows::AnswerFlags answers;
  std::optional<int64_t> doc_stride;
  std::optional<int64_t> block_size;
  std::optional<bool> add_start_token;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("task", self.task,
          "text-classification (also regression), token-classification, question-answering, feature-extraction: one "
          "vector per text, or causal-lm: how well a GPT-2 predicts it; for evaluate also masked-lm, the same of an "
          "encoder; default: as config.json's architecture and modules.json say");
    visit(
        "pooling", self.pooling,
        "of feature-extraction: mean of all tokens, or cls, the first one; default: as 1_Pooling/config.json says, or "
        "mean");
    visit("normalize", self.normalize,
          "of feature-extraction, true: scale each vector to length 1; default: as modules.json says, or false");
    visit(
        "aggregation_strategy", self.aggregation_strategy,
        "of token-classification, for predict and worker: simple (as if left out), neighbouring tokens of one label as "
        "one entity; first, average or max, the same of words, whose label is that of their first token, of the mean "
        "of their tokens' probabilities or of their surest token; or none, each token by itself. Of lists of words "
        "first (as if left out), average or max");
    rows::AnswerFlags::visit_fields(self.answers, visit);
    visit("doc_stride", self.doc_stride,
          "of question-answering: tokens that neighbouring windows of a long context share; default: 128, at most half "
          "of max_seq_length. Of causal-lm: tokens of the piece before that a piece sees; default: 0");
    visit("block_size", self.block_size,
          "of causal-lm: tokens of a piece into which longer texts are cut; default: the model's positions, at most "
          "1024");
    visit(
        "add_start_token", self.add_start_token,
        "of causal-lm, true: the first token of a text is predicted, too, from the tokenizer's bos_token before it, as "
        "Hugging Face's metric of perplexity has it; default: false");
  }
  void validate() const;
};

// Of --output_columns (prediction_columns.h).
inline constexpr const char* kOutputColumnsHelp =
    "columns to add: prediction, probabilities, logits, label_id, score; default: the first two. Of "
    "feature-extraction: embedding; of token-classification: entities, or, of lists of words, prediction and, not by "
    "default, score; of question-answering: answer, score, start and end, or, as by default with --top_k above 1, "
    "answers; of causal-lm: perplexity, loss and, not by default, predicted_tokens";

// What the numbers of a classifier stand for.
struct ClassRules {
  std::vector<std::string> labels;  // in order of id
  models::ProblemType problem = models::ProblemType::kSingleLabelClassification;
  bool is_problem_named = false;  // by config.json; if not, a single number may be a cross-encoder's
};

struct TaskHead {
  ScoringTask task = ScoringTask::kTextClassification;
  inference::Head head;                     // of an encoder
  ClassRules classes;                       // of text-classification
  EntityRules entities;                     // of token-classification
  rows::AnswerRules answers;                // of question-answering
  std::optional<int64_t> max_seq_length{};  // this and the next as a folder of sentence-transformers asks for
  bool strips_texts = false;

  std::string text() const;  // "feature-extraction, mean pooling, length 1"
  // Of token-classification: of lists of words instead of texts. Error (kUsage) for strategies that do not join words.
  void label_words(const TaskFlags& flags);
};

// What flags, config.json and, of sentence-transformers, modules.json and the pooling's config.json ask for. Errors:
// kUsage for flags of another task; kConfig for an architecture of another task, and for modules and poolings that
// strake does not compute.
TaskHead choose_task(const TaskFlags& flags, const models::EncoderConfig& config, const std::filesystem::path& folder);
// Of a language model. Errors: kUsage for flags of encoders' tasks; kConfig if no --task says that a model with another
// head, which Transformers has on GPT-2, is meant as one.
TaskHead language_task(const TaskFlags& flags, const models::Gpt2Config& config, const std::filesystem::path& folder);

}  // namespace strake::scoring
