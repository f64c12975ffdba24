#include "strake/tensors/packed_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <utility>

namespace strake::tensors {
namespace {

// cuBLAS chooses an algorithm for every number of tokens that it has not seen, which takes it longer than the product
// of a small batch: such batches get few numbers of tokens.
constexpr int64_t kMultipleOnGpu = 64;
constexpr int64_t kSmallBatch = 4096;  // tokens

int64_t multiple_on_gpu(int64_t tokens) { return tokens < kSmallBatch ? kMultipleOnGpu : 1; }

}  // namespace

int64_t tokens_on_gpu(int64_t tokens) {
  const int64_t multiple = multiple_on_gpu(tokens);
  return (tokens + multiple - 1) / multiple * multiple;
}

PackedBatch filled_up(const PackedBatch& batch, int64_t multiple) {
  const int64_t missing = (multiple - batch.num_tokens() % multiple) % multiple;
  if (missing == 0 || batch.num_tokens() == 0) return batch;
  // Ids of the batch, so that no row of a table is touched that was not.
  const auto repeat = [missing](const at::Tensor& values) {
    return at::cat({values, values.narrow(0, 0, 1).expand({missing})});
  };
  PackedBatch filled{.input_ids = repeat(batch.input_ids),
                     .token_type_ids = repeat(batch.token_type_ids),
                     .positions = repeat(batch.positions),
                     .token_rows = repeat(batch.token_rows),
                     .offsets = at::cat({batch.offsets, batch.offsets.narrow(0, batch.num_sequences(), 1) + missing}),
                     .labels = batch.labels};
  filled.host = std::make_shared<const PackedBatch>(batch);
  return filled;
}

at::Tensor to_device(const at::Tensor& values, at::Device device) {
  const bool is_sent = values.is_cpu() && device.is_cuda();
  return is_sent ? values.pin_memory().to(device, /*non_blocking=*/true) : values.to(device);
}

PackedBatch to_device(PackedBatch batch, at::Device device) {
  if (batch.input_ids.device() == device) return batch;
  const PackedBatch filled = filled_up(batch, multiple_on_gpu(batch.num_tokens()));
  const auto copy = [device](const at::Tensor& values) {
    return values.defined() ? to_device(values, device) : values;
  };
  return {.input_ids = copy(filled.input_ids),
          .token_type_ids = copy(filled.token_type_ids),
          .positions = copy(filled.positions),
          .token_rows = copy(filled.token_rows),
          .offsets = copy(filled.offsets),
          .labels = copy(filled.labels),
          .host = batch.host ? batch.host : std::make_shared<const PackedBatch>(std::move(batch))};
}

}  // namespace strake::tensors
