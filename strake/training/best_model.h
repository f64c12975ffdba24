#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strake/core/json.h"

namespace strake::training {

struct BestModelRule {
  std::string metric = "eval_loss";
  bool larger_is_better = false;
  double threshold = 0;       // a gain has to be above it to count for patience
  int64_t patience = 0;       // evaluations without gain that end a run; 0: none do
  Json evaluation = nullptr;  // on what data and how; null: there is none
};

// Which evaluation of a run is the best, and whether the run has stopped gaining: best_metric of Hugging Face's Trainer
// and its EarlyStoppingCallback. Unlike there, the best evaluation whose weights were kept is known beside the best
// one: it is the model to load at the end where a run evaluates more often than it saves.
class BestModel {
 public:
  struct Evaluation {
    double metric = 0;
    int64_t step = 0;
  };
  struct State {
    std::string metric;
    bool larger_is_better = false;
    Json evaluation = nullptr;       // BestModelRule::evaluation; null: not known
    std::optional<Evaluation> best;  // of all
    std::optional<Evaluation> kept;  // of those whose weights were kept
    bool has_first = false;          // which, as there, does not count as one without gain, whatever its metric
    int64_t evaluations_without_gain = 0;
  };

  explicit BestModel(const BestModelRule& rule)
      : rule_(rule),
        state_{.metric = rule.metric, .larger_is_better = rule.larger_is_better, .evaluation = rule.evaluation} {}

  // A metric that is not finite is never the best.
  void add(const Evaluation& evaluation);
  // The weights of this evaluation are in a checkpoint, or are the last ones. True if they are the best of those kept.
  bool keep(const Evaluation& evaluation);
  bool is_out_of_patience() const;

  const State& state() const { return state_; }
  // False, and nothing is taken over, if `state` is of another metric, other data or another way to evaluate.
  bool restore(const State& state);

 private:
  // Above 0 if `evaluation` is better than `best`.
  double gain(const Evaluation& evaluation, const std::optional<Evaluation>& best) const;

  BestModelRule rule_;
  State state_;
};

Json to_json(const BestModel::State& state);
// `source` is named in errors.
BestModel::State best_model_state(const Json& json, const std::string& source);

}  // namespace strake::training
