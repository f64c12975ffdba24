#pragma once

#include <string>
#include <vector>

#include "strake/models/model.h"

// Training some of a model's parameters, chosen by their Hugging Face names.
namespace strake::training {

// Comma-separated shell-style patterns (fnmatch: *, ?, [0-5], [!a]), where * also matches dots. One of them at most.
struct FreezeRules {
  std::string freeze;      // these are frozen
  std::string train_only;  // all but these are frozen
};

// Takes parameters out of training. A tied weight answers to both of its names. Errors (kUsage): a pattern is empty
// or matches nothing; parameters that strake keeps in one tensor (query, key and value) would be parted; nothing would
// be left to train.
void freeze_parameters(models::Model& model, const FreezeRules& rules);

// All of them, of a model that is only evaluated.
void freeze_all(models::Model& model);

// Hugging Face names of the frozen parameters, in the order of the model.
std::vector<std::string> frozen_names(const models::Model& model);

// "trainable params: 1,538 || all params: 4,386,178 || trainable%: 0.0351", as PEFT's print_trainable_parameters.
std::string describe_trainable(const models::Model& model);

}  // namespace strake::training
