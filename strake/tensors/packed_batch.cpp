#include "strake/tensors/packed_batch.h"

#include <utility>

namespace strake::tensors {

PackedBatch to_device(PackedBatch batch, at::Device device) {
  if (batch.input_ids.device() == device) return batch;
  const auto copy = [device](const at::Tensor& values) { return values.defined() ? values.to(device) : values; };
  PackedBatch placed{.input_ids = copy(batch.input_ids),
                     .token_type_ids = copy(batch.token_type_ids),
                     .positions = copy(batch.positions),
                     .token_rows = copy(batch.token_rows),
                     .offsets = copy(batch.offsets),
                     .labels = copy(batch.labels)};
  placed.host = std::make_shared<const PackedBatch>(std::move(batch));
  return placed;
}

}  // namespace strake::tensors
