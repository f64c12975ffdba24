#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strake/core/json.h"

namespace strake::monitor {

// The state that Transformers 5.23 keeps in a checkpoint's trainer_state.json, field by field (TrainerState in its
// trainer_callback.py), so that either side can continue the other's run.
struct TrainerState {
  double epoch = 0;
  int64_t global_step = 0;  // optimizer updates done
  int64_t max_steps = 0;
  int64_t logging_steps = 500;
  int64_t eval_steps = 500;
  int64_t save_steps = 500;
  std::optional<int64_t> train_batch_size;
  int64_t num_train_epochs = 0;
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  Json log_history = Json::array();  // objects such as {"epoch": 0.5, "loss": 0.4, "step": 10}
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::optional<std::string> best_model_checkpoint;
  bool is_local_process_zero = true;
  bool is_world_process_zero = true;
  bool is_hyper_param_search = false;
  std::optional<std::string> trial_name;
  Json trial_params;                            // an object or null
  Json stateful_callbacks = trainer_control();  // by class name; Transformers' Trainer needs "TrainerControl" there

  // The entry that Transformers writes while it saves a checkpoint.
  static Json trainer_control();
};

// The file as Transformers writes it: keys sorted, two blanks of indentation, a final line feed. A number that is not
// finite becomes null (Python would write NaN, which is not JSON).
std::string to_json_text(const TrainerState& state);

// The same of at most `most_bytes`, so that it can be read again: as long as it is longer, the older half of the log
// goes, from `state`, too.
std::string to_json_text_within(uint64_t most_bytes, TrainerState& state);

// Reads a trainer_state.json of strake or Transformers; absent fields have their defaults, unknown ones are ignored.
// Errors are kConfig and name `source`, the key and the value.
TrainerState trainer_state_from_json(const Json& document, const std::string& source);

}  // namespace strake::monitor
