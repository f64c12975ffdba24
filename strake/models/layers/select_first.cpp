#include "strake/models/layers/select_first.h"

namespace strake::models::layers {

at::Tensor select_first(const at::Tensor& hidden, const tensors::PackedBatch& batch) {
  return hidden.index_select(0, batch.offsets.narrow(0, 0, batch.num_sequences()));
}

}  // namespace strake::models::layers
