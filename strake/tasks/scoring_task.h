#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strake/inference/head.h"
#include "strake/models/encoder/config.h"
#include "strake/tasks/answer_flags.h"
#include "strake/tasks/answer_spans.h"

namespace strake::tasks {

// What is computed for a row; the names are those of Transformers' pipelines.
enum class ScoringTask { kTextClassification, kTokenClassification, kQuestionAnswering, kFeatureExtraction };

const char* to_string(ScoringTask task);  // "text-classification", ...
std::optional<ScoringTask> find_task(std::string_view name);

// How entities are made of tokens; the names are those of Transformers' aggregation strategies.
enum class Aggregation { kNone, kSimple, kFirst, kAverage, kMax };
const char* to_string(Aggregation aggregation);
// The tokens of a word are given one label before entities are made.
constexpr bool joins_words(Aggregation aggregation) { return aggregation > Aggregation::kSimple; }

struct EntityRules {
  std::vector<std::string> labels;  // in order of id
  Aggregation aggregation = Aggregation::kSimple;
};

// Flags of verbs that score with more than classifiers.
struct TaskFlags {
  std::string task;
  std::string pooling;
  std::optional<bool> normalize;
  std::string aggregation_strategy;
  AnswerFlags answers;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("task", self.task,
          "text-classification (also regression), token-classification, question-answering, or feature-extraction: one "
          "vector per text; strake evaluate also has causal-lm, the perplexity of a GPT-2; default: as config.json's "
          "architecture and modules.json say");
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
        "of "
        "their tokens' probabilities or of their surest token; or none, each token by itself");
    AnswerFlags::visit_fields(self.answers, visit);
  }
  void validate() const;
};

struct TaskHead {
  ScoringTask task = ScoringTask::kTextClassification;
  inference::Head head;
  EntityRules entities;                     // of token-classification
  AnswerRules answers;                      // of question-answering
  std::optional<int64_t> max_seq_length{};  // this and the next as a folder of sentence-transformers asks for
  bool strips_texts = false;

  std::string text() const;  // "feature-extraction, mean pooling, length 1"
};

// What flags, config.json and, of sentence-transformers, modules.json and the pooling's config.json ask for. Errors:
// kUsage for flags of another task; kConfig for an architecture of another task, and for modules and poolings that
// strake does not compute.
TaskHead choose_task(const TaskFlags& flags, const models::EncoderConfig& config, const std::filesystem::path& folder);

}  // namespace strake::tasks
