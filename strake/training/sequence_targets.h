#pragma once

#include "strake/data/token_dataset.h"
#include "strake/models/model.h"

namespace strake::training {

// What the loss of a sequence is the sum of: labelled tokens, where the dataset has them, or else what the model says.
inline int64_t targets_of_sequence(const models::Model& model, const data::TokenDataset& dataset, int64_t i) {
  if (dataset.label_kind() == data::TokenLabelKind::kTokenClasses) return dataset.num_labelled(i);
  return model.num_targets(dataset.length(i));
}

}  // namespace strake::training
