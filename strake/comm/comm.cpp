#include "strake/comm/comm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strake/core/error.h"

namespace strake::comm {

void SelfComm::reduce_scatter(const Addend& full, int /*contributors*/, const tensors::ShardLayout&, at::Tensor& shard,
                              Fold fold) {
  fold_piece(full.values, shard, fold);
}

void SelfComm::send(const at::Tensor&, int destination) {
  fail(ErrorKind::kInternal, "one rank alone cannot send to rank {}", destination);
}

void SelfComm::recv(at::Tensor&, int source) {
  fail(ErrorKind::kInternal, "one rank alone cannot receive from rank {}", source);
}

std::vector<double> all_gather_values(Comm& comm, const std::vector<double>& values) {
  const auto count = static_cast<int64_t>(values.size());
  at::Tensor slots = at::zeros({comm.size() * count}, at::kDouble);
  auto* data = slots.mutable_data_ptr<double>();
  std::copy(values.begin(), values.end(), data + comm.rank() * count);
  comm.all_reduce(slots);  // exact: all but one addend of each slot are zero
  return {data, data + slots.numel()};
}

std::string broadcast_text(Comm& comm, const std::string& own, int root) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  comm.broadcast(length, root);
  at::Tensor letters = at::empty({*length.const_data_ptr<int64_t>()}, at::kInt);
  auto* values = letters.mutable_data_ptr<int32_t>();
  if (comm.rank() == root) std::ranges::copy(own, values);
  if (letters.numel() > 0) comm.broadcast(letters, root);
  return {values, values + letters.numel()};
}

void fold_piece(const at::Tensor& piece, at::Tensor& shard, Fold fold) {
  if (fold == Fold::kOverwrite) {
    shard.copy_(piece);
  } else {
    shard.add_(piece);
  }
}

}  // namespace strake::comm
