#include "strake/training/sharded_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "strake/core/error.h"
#include "strake/kernels/global_norm.h"

namespace strake::training {
namespace {

using tensors::ShardLayout;

static_assert(kernels::kSquaresChunk == ShardLayout::kAlignment,
              "shards must begin where the norm's partial sums begin");

std::vector<kernels::TensorSegment> tensor_segments(const models::Block& block, double weight_decay) {
  std::vector<kernels::TensorSegment> segments;
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    const auto& entry = block.layout().entries()[i];
    const bool exempt = block.parameters()[i].decay == models::WeightDecay::kExempt;
    segments.push_back({entry.begin, entry.end, exempt ? 0 : weight_decay});
  }
  return segments;
}

// Rank g * G + l of a world of R groups of G ranks gets piece l * R + g: the pieces of the ranks with the same place l
// in their groups lie side by side, and together are place l's piece within a group.
ShardLayout hybrid_layout(int64_t numel, int world, int group) {
  const ShardLayout ordered(numel, world);
  const int replicas = world / group;
  std::vector<ShardLayout::Piece> pieces;
  for (int rank = 0; rank < world; ++rank) {
    const int piece = rank % group * replicas + rank / group;
    pieces.push_back({ordered.begin(piece), ordered.end(piece)});
  }
  return ShardLayout(std::move(pieces));
}

// The pieces of the ranks of one group, from the layout of the world.
ShardLayout group_layout(const ShardLayout& world, int group) {
  std::vector<ShardLayout::Piece> pieces;
  for (int place = 0; place < group; ++place) {
    const int last = world.num_shards() - group + place;
    pieces.push_back({world.begin(place), world.end(last)});
  }
  return ShardLayout(std::move(pieces));
}

// The pieces of the ranks with the same place, counted from the beginning of the first.
ShardLayout replica_layout(const ShardLayout& world, int group, int place) {
  std::vector<ShardLayout::Piece> pieces;
  for (int rank = place; rank < world.num_shards(); rank += group) {
    pieces.push_back({world.begin(rank) - world.begin(place), world.end(rank) - world.begin(place)});
  }
  return ShardLayout(std::move(pieces));
}

at::Tensor window(const at::Tensor& flat, int64_t begin, int64_t size) { return flat.narrow(0, begin, size); }

// What the rank updates of a block.
kernels::FlatWindow own_window(BlockShard& block) {
  kernels::FlatWindow window{.parameters = block.master.mutable_data_ptr<float>(),
                             .gradients = block.gradient.mutable_data_ptr<float>(),
                             .begin = block.begin,
                             .count = block.master.numel(),
                             .segments = block.tensors};
  for (size_t i = 0; i < block.states.size(); ++i) window.states[i] = block.states[i].mutable_data_ptr<float>();
  if (block.kept.scalar_type() == at::kBFloat16) {
    window.rounded = static_cast<kernels::BFloat16*>(block.kept.mutable_data_ptr()) + (block.begin - block.kept_begin);
  }
  return window;
}

}  // namespace

ShardedParameters::ShardedParameters(const models::Model& model, comm::Comm& comm, const TrainingOptions& options)
    : model_(model),
      comm_(comm),
      options_(options),
      stage_(options.sharding.stage),
      optimizer_(options.optimizer_settings()),
      requested_(model.blocks().size()) {
  if (comm.size() > 1) queue_ = std::make_unique<comm::CommQueue>();
  if (stage_.parameters == Kept::kGroupShard) {
    const auto group = static_cast<int>(options.sharding.group_size);
    require(group > 0 && comm.size() % group == 0, ErrorKind::kUsage,
            "hybrid sharding: {} ranks cannot be split into groups of {}", comm.size(), group);
    group_ = comm.split(rank() / group);
    replicas_ = comm.split(rank() % group);
  }
  for (const auto& block : model.blocks()) add_block(*block);
}

void ShardedParameters::add_block(const models::Block& block) {
  const int64_t numel = block.layout().numel();
  const bool low_precision = options_.precision() == Precision::kBf16;
  const at::ScalarType dtype = low_precision ? at::kBFloat16 : at::kFloat;
  BlockShard& shard = blocks_.emplace_back(group_ ? hybrid_layout(numel, comm_.size(), group_->size())
                                                  : ShardLayout(numel, comm_.size()));
  const bool updates_all = stage_.optimizer == Kept::kWhole;
  shard.begin = updates_all ? 0 : shard.layout.begin(rank());
  const int64_t size = updates_all ? numel : shard.layout.size(rank());

  if (options_.sharding.share_between_threads && !updates_all) shard.whole = comm_.share(numel, dtype);
  shard.is_shared = shard.whole.defined();
  shard.is_kept_whole =
      shard.is_shared || stage_.gathered != Gathered::kForEachPass || numel < options_.sharding.persistence_threshold;
  if (shard.is_kept_whole) {
    if (!shard.whole.defined()) shard.whole = at::zeros({numel}, dtype);
    shard.kept = shard.whole;
  } else {
    shard.whole = at::empty({numel}, dtype);
    GatherBuffers::strip(shard.whole);
    const ShardLayout pieces = group_ ? group_layout(shard.layout, group_->size()) : shard.layout;
    const int place = group_ ? group_->rank() : rank();
    shard.kept_begin = pieces.begin(place);
    shard.kept = at::zeros({pieces.size(place)}, dtype);
  }
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  shard.master = low_precision ? at::zeros({size}, fp32) : window(shard.kept, shard.begin - shard.kept_begin, size);
  shard.gradient = at::zeros({size}, fp32);
  for (const optim::Optimizer::State& state : optimizer_.states()) {
    shard.states.push_back(at::full({size}, state.initial, fp32));
  }
  shard.tensors = tensor_segments(block, options_.weight_decay);
}

at::Tensor ShardedParameters::gradient_piece(size_t i) const {
  const BlockShard& block = blocks_[i];
  return window(block.gradient, block.layout.begin(rank()) - block.begin, block.layout.size(rank()));
}

void ShardedParameters::assign(size_t i, const at::Tensor& whole_fp32) {
  BlockShard& block = blocks_[i];
  block.master.copy_(own_part(i, whole_fp32));
  // A rank writes only its own part of a shared buffer; the others are writing theirs.
  const int64_t begin = block.is_shared ? block.begin : block.kept_begin;
  const int64_t size = block.is_shared ? block.master.numel() : block.kept.numel();
  window(block.kept, begin - block.kept_begin, size).copy_(window(whole_fp32, begin, size));
  comm_.barrier();
}

void ShardedParameters::hold(size_t i) {
  BlockShard& block = blocks_[i];
  if (block.users++ > 0 || block.is_kept_whole) return;
  buffers_.attach(block.whole);
  window(block.whole, block.kept_begin, block.kept.numel()).copy_(block.kept);
  if (!queue_) return;
  block.ticket = queue_->post([this, i] {
    BlockShard& arriving = blocks_[i];
    if (group_) {
      group_->all_gather(arriving.whole, group_layout(arriving.layout, group_->size()));
    } else {
      comm_.all_gather(arriving.whole, arriving.layout);
    }
  });
}

void ShardedParameters::drop(size_t i) {
  BlockShard& block = blocks_[i];
  if (--block.users == 0 && !block.is_kept_whole) buffers_.detach(block.whole);
}

void ShardedParameters::prefetch(size_t i) {
  if (i >= num_blocks() || requested_[i] != 0) return;
  requested_[i] = 1;
  hold(i);
  for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) hold(tied.block);
}

models::Parameters ShardedParameters::gather(size_t i, const Sinks& sinks) {
  prefetch(i);
  models::Parameters views;
  append_views(i, 0, model_.blocks()[i]->parameters().size(), sinks, views);
  for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) {
    append_views(tied.block, tied.parameter, 1, sinks, views);
  }
  return views;
}

void ShardedParameters::append_views(size_t i, size_t first, size_t count, const Sinks& sinks,
                                     models::Parameters& views) const {
  if (queue_) queue_->wait_for(blocks_[i].ticket);
  const models::Parameters all = model_.blocks()[i]->view(blocks_[i].whole, sinks ? sinks(i) : nullptr);
  views.insert(views.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
               all.begin() + static_cast<std::ptrdiff_t>(first + count));
}

void ShardedParameters::release(size_t i) {
  requested_[i] = 0;
  drop(i);
  for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) drop(tied.block);
}

double ShardedParameters::gradient_norm() {
  int64_t num_chunks = 0;
  for (const BlockShard& block : blocks_) num_chunks += kernels::num_squares_chunks(block.whole.numel());
  at::Tensor partial = at::zeros({num_chunks}, at::kDouble);
  auto* next = partial.mutable_data_ptr<double>();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const at::Tensor piece = gradient_piece(i);
    const int64_t first = blocks_[i].layout.begin(rank()) / kernels::kSquaresChunk;
    const int64_t count = kernels::num_squares_chunks(piece.numel());
    kernels::sum_of_squares(piece.const_data_ptr<float>(), piece.numel(),
                            std::span(next + first, static_cast<size_t>(count)));
    next += kernels::num_squares_chunks(blocks_[i].whole.numel());
  }
  comm_.all_reduce(partial);  // exact: each chunk is summed by one rank, the others have zero
  return std::sqrt(kernels::add_in_order({partial.const_data_ptr<double>(), static_cast<size_t>(num_chunks)}));
}

void ShardedParameters::update(const Update& update) {
  const kernels::UpdateStep step{.learning_rate = update.learning_rate,
                                 .number = update.step,
                                 .gradient_scale = static_cast<float>(update.gradient_scale)};
  if (stage_.reduced == Reduced::kToAllRanks) {
    for (BlockShard& block : blocks_) comm_.all_gather(block.gradient, block.layout);
  }
  std::vector<std::vector<double>> ratios;
  if (optimizer_.needs_trust_ratios()) ratios = trust_ratios(step, update.betas);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (optimizer_.needs_trust_ratios()) {
      optimizer_.apply(own_window(blocks_[i]), step, ratios[i], update.betas);
    } else {
      optimizer_.update(own_window(blocks_[i]), step, update.betas);
    }
    complete(blocks_[i]);
  }
  comm_.barrier();  // shared parameters are complete when every rank has updated its part
}

std::vector<std::vector<double>> ShardedParameters::trust_ratios(const kernels::UpdateStep& step,
                                                                 const std::optional<optim::Betas>& betas) {
  static_assert(sizeof(kernels::LambSums) == 2 * sizeof(double));
  int64_t num_sums = 0;
  for (const BlockShard& block : blocks_) num_sums += kernels::num_lamb_sums(block.tensors);
  at::Tensor all = at::zeros({2 * num_sums}, at::kDouble);
  std::span<kernels::LambSums> rest(static_cast<kernels::LambSums*>(all.mutable_data_ptr()),
                                    static_cast<size_t>(num_sums));
  std::vector<std::span<kernels::LambSums>> sums;
  for (BlockShard& block : blocks_) {
    sums.push_back(rest.first(static_cast<size_t>(kernels::num_lamb_sums(block.tensors))));
    rest = rest.subspan(sums.back().size());
    optimizer_.prepare(own_window(block), step, sums.back(), betas);
  }
  // Exact: each sum is taken by one rank, the others have zero. Ranks that update everything have all of them.
  if (stage_.optimizer != Kept::kWhole) comm_.all_reduce(all);
  std::vector<std::vector<double>> ratios;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    ratios.push_back(optimizer_.trust_ratios(blocks_[i].tensors, sums[i]));
  }
  return ratios;
}

void ShardedParameters::complete(BlockShard& block) {
  if (block.is_shared || stage_.optimizer == Kept::kWhole) return;
  if (block.is_kept_whole) {
    comm_.all_gather(block.whole, block.layout);
  } else if (replicas_) {
    replicas_->all_gather(block.kept, replica_layout(block.layout, group_->size(), group_->rank()));
  }
}

at::Tensor ShardedParameters::gather_whole(size_t i, const at::Tensor& own) {
  if (stage_.optimizer == Kept::kWhole) return own;
  at::Tensor whole = at::zeros({blocks_[i].whole.numel()}, at::kFloat);
  own_part(i, whole).copy_(own);
  comm_.all_gather(whole, blocks_[i].layout);
  return whole;
}

at::Tensor ShardedParameters::own_part(size_t i, const at::Tensor& whole) const {
  return window(whole, blocks_[i].begin, blocks_[i].master.numel());
}

}  // namespace strake::training
