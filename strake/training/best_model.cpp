#include "strake/training/best_model.h"

#include <cmath>
#include <limits>

#include "strake/core/error.h"

namespace strake::training {
namespace {

Json evaluation_json(const BestModel::Evaluation& evaluation) {
  return {{"metric", evaluation.metric}, {"step", evaluation.step}};
}

std::optional<BestModel::Evaluation> evaluation_from(const Json& json, const char* key, const std::string& source) {
  if (!json.contains(key)) return std::nullopt;
  const Json evaluation = get_required<Json>(json, key, source);
  return BestModel::Evaluation{.metric = get_required<double>(evaluation, "metric", source),
                               .step = get_required<int64_t>(evaluation, "step", source)};
}

}  // namespace

double BestModel::gain(const Evaluation& evaluation, const std::optional<Evaluation>& best) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!std::isfinite(evaluation.metric)) return -kInfinity;
  if (!best) return kInfinity;
  return rule_.larger_is_better ? evaluation.metric - best->metric : best->metric - evaluation.metric;
}

void BestModel::add(const Evaluation& evaluation) {
  const double gained = gain(evaluation, state_.best);
  const bool is_gain = gained > rule_.threshold || !state_.has_first;
  state_.has_first = true;
  state_.evaluations_without_gain = is_gain ? 0 : state_.evaluations_without_gain + 1;
  if (gained > 0) state_.best = evaluation;
}

bool BestModel::keep(const Evaluation& evaluation) {
  const bool is_best = gain(evaluation, state_.kept) > 0;
  if (is_best) state_.kept = evaluation;
  return is_best;
}

bool BestModel::is_out_of_patience() const {
  return rule_.patience > 0 && state_.evaluations_without_gain >= rule_.patience;
}

bool BestModel::restore(const State& state) {
  const bool are_known = !state.evaluation.is_null() && !rule_.evaluation.is_null();
  if (are_known && state.evaluation != rule_.evaluation) return false;
  if (state.metric != rule_.metric || state.larger_is_better != rule_.larger_is_better) return false;
  state_ = state;
  state_.evaluation = rule_.evaluation;
  return true;
}

Json to_json(const BestModel::State& state) {
  Json json{{"metric", state.metric},
            {"larger_is_better", state.larger_is_better},
            {"has_first", state.has_first},
            {"evaluations_without_gain", state.evaluations_without_gain}};
  if (state.best) json["best"] = evaluation_json(*state.best);
  if (!state.evaluation.is_null()) json["evaluation"] = state.evaluation;
  if (state.kept) json["kept"] = evaluation_json(*state.kept);
  return json;
}

BestModel::State best_model_state(const Json& json, const std::string& source) {
  const auto without_gain = get_required<int64_t>(json, "evaluations_without_gain", source);
  return {.metric = get_required<std::string>(json, "metric", source),
          .larger_is_better = get_required<bool>(json, "larger_is_better", source),
          .evaluation = get_or<Json>(json, "evaluation", nullptr, source),
          .best = evaluation_from(json, "best", source),
          .kept = evaluation_from(json, "kept", source),
          .has_first = get_or<bool>(json, "has_first", json.contains("best") || without_gain > 0, source),
          .evaluations_without_gain = without_gain};
}

}  // namespace strake::training
