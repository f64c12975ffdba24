#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "strake/models/model.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// A model without weights.
struct EstimatedModel {
  std::unique_ptr<models::Model> model;
  std::string name;
  int64_t hidden_size = 0;
  int64_t max_length = 0;      // that the model takes
  int64_t default_length = 0;  // of training sequences
};
// Of the task's kind, from a folder, a config.json or defaults.
EstimatedModel estimated_model(const TrainConfig& config);

}  // namespace strake::tasks
