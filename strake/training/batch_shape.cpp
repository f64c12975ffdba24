#include "strake/training/batch_shape.h"

#include <algorithm>

namespace strake::training {
namespace {

int64_t targets_of(const models::Model& model, const data::TokenDataset& dataset, int64_t sequence) {
  if (dataset.label_kind() == data::TokenLabelKind::kTokenClasses) return dataset.num_labelled(sequence);
  return model.num_targets(dataset.length(sequence));
}

void add(const models::Model& model, const data::TokenDataset& dataset, std::span<const int64_t> sequences,
         models::BatchShape& shape) {
  for (const int64_t i : sequences) {
    const int64_t length = dataset.length(i);
    shape.tokens += length;
    shape.squared_lengths += static_cast<double>(length) * static_cast<double>(length);
    shape.longest = std::max(shape.longest, length);
    shape.targets += targets_of(model, dataset, i);
  }
  shape.sequences += std::ssize(sequences);
}

}  // namespace

models::BatchShape shape_of(const models::Model& model, const data::TokenDataset& dataset,
                            std::span<const int64_t> sequences) {
  models::BatchShape shape;
  add(model, dataset, sequences, shape);
  return shape;
}

models::BatchShape shape_of(const models::Model& model, const data::TokenDataset& dataset,
                            const data::GlobalStep& step) {
  models::BatchShape shape;
  for (const data::MicroBatch& batch : step.micro_batches) add(model, dataset, batch, shape);
  return shape;
}

}  // namespace strake::training
