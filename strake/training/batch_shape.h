#pragma once

#include <cstdint>
#include <span>

#include "strake/data/batch_plan.h"
#include "strake/data/token_dataset.h"
#include "strake/models/model.h"

namespace strake::training {

// Of a batch of these sequences of the dataset. Its targets are what its loss is the sum of: labelled tokens, where the
// dataset has them, or else what the model says.
models::BatchShape shape_of(const models::Model& model, const data::TokenDataset& dataset,
                            std::span<const int64_t> sequences);
// Of all micro-batches together.
models::BatchShape shape_of(const models::Model& model, const data::TokenDataset& dataset,
                            const data::GlobalStep& step);

}  // namespace strake::training
