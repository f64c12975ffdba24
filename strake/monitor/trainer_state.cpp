#include "strake/monitor/trainer_state.h"

#include <cmath>

namespace strake::monitor {
namespace {

// Typed reading of one document.
class Fields {
 public:
  Fields(const Json& document, const std::string& source) : document_(document), source_(source) {
    require(document.is_object(), ErrorKind::kConfig, "{}: not a JSON object", source);
  }

  template <typename T>
  void read(const char* key, T& field) const {
    field = get_or<T>(document_, key, field, source_);
  }

  template <typename T>
  void read(const char* key, std::optional<T>& field) const {
    if (has(key)) field = get_required<T>(document_, key, source_);
  }

  // Python writes 500.0 where a count was computed from a share of all steps.
  void read_count(const char* key, int64_t& field) const {
    constexpr double kLargestExact = 0x1p53;
    const auto value = get_or<double>(document_, key, static_cast<double>(field), source_);
    require(value >= 0 && value <= kLargestExact && value == std::floor(value), ErrorKind::kConfig,
            "{}: key '{}' has the value {}, which is not a count", source_, key, value);
    field = static_cast<int64_t>(value);
  }

  void read_count(const char* key, std::optional<int64_t>& field) const {
    if (has(key)) read_count(key, field.emplace());
  }

  void read_object(const char* key, Json& field) const {
    if (!has(key)) return;
    require(document_.at(key).is_object(), ErrorKind::kConfig, "{}: key '{}' is not an object", source_, key);
    field = document_.at(key);
  }

  void read_log_history(Json& field) const {
    if (!has("log_history")) return;
    const Json& history = document_.at("log_history");
    require(history.is_array(), ErrorKind::kConfig, "{}: key 'log_history' is not an array", source_);
    for (size_t i = 0; i < history.size(); ++i) {
      require(history[i].is_object(), ErrorKind::kConfig, "{}: log_history[{}] is not an object", source_, i);
    }
    field = history;
  }

 private:
  bool has(const char* key) const { return document_.contains(key) && !document_.at(key).is_null(); }

  const Json& document_;
  const std::string& source_;
};

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

void require_at_least_zero(double value, const char* key, const std::string& source) {
  require(value >= 0, ErrorKind::kConfig, "{}: key '{}' has the value {}; it must not be negative", source, key, value);
}

}  // namespace

Json TrainerState::trainer_control() {
  const Json arguments = {{"should_epoch_stop", false},
                          {"should_evaluate", false},
                          {"should_log", false},
                          {"should_save", true},
                          {"should_training_stop", false}};
  return {{"TrainerControl", {{"args", arguments}, {"attributes", Json::object()}}}};
}

std::string to_json_text(const TrainerState& state) {
  const Json document = {
      {"best_global_step", or_null(state.best_global_step)},
      {"best_metric", or_null(state.best_metric)},
      {"best_model_checkpoint", or_null(state.best_model_checkpoint)},
      {"epoch", state.epoch},
      {"eval_steps", state.eval_steps},
      {"global_step", state.global_step},
      {"is_hyper_param_search", state.is_hyper_param_search},
      {"is_local_process_zero", state.is_local_process_zero},
      {"is_world_process_zero", state.is_world_process_zero},
      {"log_history", state.log_history},
      {"logging_steps", state.logging_steps},
      {"max_steps", state.max_steps},
      {"num_input_tokens_seen", state.num_input_tokens_seen},
      {"num_train_epochs", state.num_train_epochs},
      {"save_steps", state.save_steps},
      {"stateful_callbacks", state.stateful_callbacks},
      {"total_flos", state.total_flos},
      {"train_batch_size", or_null(state.train_batch_size)},
      {"trial_name", or_null(state.trial_name)},
      {"trial_params", state.trial_params},
  };
  constexpr int kIndent = 2;
  constexpr bool kEnsureAscii = true;
  return document.dump(kIndent, ' ', kEnsureAscii, Json::error_handler_t::replace) + "\n";
}

std::string to_json_text_within(uint64_t most_bytes, TrainerState& state) {
  Json& log = state.log_history;
  std::string text = to_json_text(state);
  while (text.size() > most_bytes && !log.empty()) {
    log.erase(log.begin(), log.begin() + static_cast<std::ptrdiff_t>((log.size() + 1) / 2));
    text = to_json_text(state);
  }
  return text;
}

TrainerState trainer_state_from_json(const Json& document, const std::string& source) {
  const Fields fields(document, source);
  TrainerState state;
  fields.read("epoch", state.epoch);
  fields.read_count("global_step", state.global_step);
  fields.read_count("max_steps", state.max_steps);
  fields.read_count("logging_steps", state.logging_steps);
  fields.read_count("eval_steps", state.eval_steps);
  fields.read_count("save_steps", state.save_steps);
  fields.read_count("train_batch_size", state.train_batch_size);
  fields.read_count("num_train_epochs", state.num_train_epochs);
  fields.read_count("num_input_tokens_seen", state.num_input_tokens_seen);
  fields.read("total_flos", state.total_flos);
  fields.read_log_history(state.log_history);
  fields.read("best_metric", state.best_metric);
  fields.read_count("best_global_step", state.best_global_step);
  fields.read("best_model_checkpoint", state.best_model_checkpoint);
  fields.read("is_local_process_zero", state.is_local_process_zero);
  fields.read("is_world_process_zero", state.is_world_process_zero);
  fields.read("is_hyper_param_search", state.is_hyper_param_search);
  fields.read("trial_name", state.trial_name);
  fields.read_object("trial_params", state.trial_params);
  fields.read_object("stateful_callbacks", state.stateful_callbacks);
  require_at_least_zero(state.epoch, "epoch", source);
  require_at_least_zero(state.total_flos, "total_flos", source);
  return state;
}

}  // namespace strake::monitor
