#include "strake/training/sharded_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "strake/kernels/global_norm.h"

namespace strake::training {
namespace {

using tensors::ShardLayout;

static_assert(kernels::kSquaresChunk == ShardLayout::kAlignment,
              "shards must begin where the norm's partial sums begin");

std::vector<kernels::WeightDecaySegment> decay_segments(const models::Block& block, int64_t begin, int64_t end,
                                                        double weight_decay) {
  std::vector<kernels::WeightDecaySegment> segments;
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    if (block.parameters()[i].decay == models::WeightDecay::kExempt) continue;
    const auto& entry = block.layout().entries()[i];
    const int64_t first = std::max(entry.begin, begin);
    const int64_t last = std::min(entry.end, end);
    if (first < last) segments.push_back({first - begin, last - begin, static_cast<float>(weight_decay)});
  }
  return segments;
}

}  // namespace

ShardedParameters::ShardedParameters(const models::SequenceClassifier& model, comm::Comm& comm,
                                     const TrainingOptions& options)
    : model_(model), comm_(comm), options_(options) {
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  const bool low_precision = options.precision() == Precision::kBf16;
  for (const auto& block : model.blocks()) {
    const int64_t numel = block->layout().numel();
    BlockShard& shard = blocks_.emplace_back(ShardLayout(numel, comm.size()));
    const int64_t begin = shard.layout.begin(rank());
    const int64_t size = shard.layout.size(rank());
    shard.whole = at::zeros({numel}, fp32.dtype(low_precision ? at::kBFloat16 : at::kFloat));
    shard.master = low_precision ? at::zeros({size}, fp32) : shard.whole.narrow(0, begin, size);
    shard.gradient = at::zeros({size}, fp32);
    shard.exp_avg = at::zeros({size}, fp32);
    shard.exp_avg_sq = at::zeros({size}, fp32);
    shard.decay = decay_segments(*block, begin, begin + size, options.weight_decay);
  }
}

void ShardedParameters::assign(size_t i, const at::Tensor& whole_fp32) {
  blocks_[i].whole.copy_(whole_fp32);
  blocks_[i].master.copy_(shard_of(i, whole_fp32));
}

models::Parameters ShardedParameters::gather(size_t i, models::GradientSink* sink) const {
  return model_.blocks()[i]->view(blocks_[i].whole, sink);
}

double ShardedParameters::gradient_norm() {
  int64_t num_chunks = 0;
  for (const BlockShard& block : blocks_) num_chunks += kernels::num_squares_chunks(block.whole.numel());
  at::Tensor partial = at::zeros({num_chunks}, at::kDouble);
  auto* next = partial.mutable_data_ptr<double>();
  for (const BlockShard& block : blocks_) {
    const int64_t begin = block.layout.begin(rank()) / kernels::kSquaresChunk;
    const int64_t count = kernels::num_squares_chunks(block.gradient.numel());
    kernels::sum_of_squares(block.gradient.const_data_ptr<float>(), block.gradient.numel(),
                            std::span(next + begin, static_cast<size_t>(count)));
    next += kernels::num_squares_chunks(block.whole.numel());
  }
  comm_.all_reduce(partial);  // exact: each chunk is summed by one rank, the others have zero
  return std::sqrt(kernels::add_in_order({partial.const_data_ptr<double>(), static_cast<size_t>(num_chunks)}));
}

void ShardedParameters::update(const Update& update) {
  for (BlockShard& block : blocks_) {
    const bool low_precision = block.whole.scalar_type() == at::kBFloat16;
    auto* rounded = low_precision
                        ? static_cast<kernels::BFloat16*>(block.whole.mutable_data_ptr()) + block.layout.begin(rank())
                        : nullptr;
    kernels::adamw({.parameters = block.master.mutable_data_ptr<float>(),
                    .gradients = block.gradient.const_data_ptr<float>(),
                    .exp_avg = block.exp_avg.mutable_data_ptr<float>(),
                    .exp_avg_sq = block.exp_avg_sq.mutable_data_ptr<float>(),
                    .rounded = rounded,
                    .count = block.master.numel(),
                    .learning_rate = update.learning_rate,
                    .beta1 = options_.adam_beta1,
                    .beta2 = options_.adam_beta2,
                    .epsilon = options_.adam_epsilon,
                    .step = update.step,
                    .gradient_scale = static_cast<float>(update.gradient_scale),
                    .decay = block.decay});
    comm_.all_gather(block.whole, block.layout);
  }
}

at::Tensor ShardedParameters::gather_whole(size_t i, const at::Tensor& shard) {
  at::Tensor whole = at::zeros({blocks_[i].whole.numel()}, at::kFloat);
  shard_of(i, whole).copy_(shard);
  comm_.all_gather(whole, blocks_[i].layout);
  return whole;
}

at::Tensor ShardedParameters::shard_of(size_t i, const at::Tensor& whole) const {
  return whole.narrow(0, blocks_[i].layout.begin(rank()), blocks_[i].layout.size(rank()));
}

}  // namespace strake::training
