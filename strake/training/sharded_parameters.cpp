#include "strake/training/sharded_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "strake/core/error.h"
#include "strake/kernels/global_norm.h"
#include "strake/training/hybrid_layout.h"

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

at::Tensor window(const at::Tensor& flat, int64_t begin, int64_t size) { return flat.narrow(0, begin, size); }

// The part of what is kept that the rank updates.
at::Tensor own_kept(const BlockShard& block) { return window(block.kept, block.begin - block.kept_begin, block.count); }

// Calls `call` with a pointer of the kernels' storage type to the first element of `flat`.
template <typename Call>
auto with_storage(const at::Tensor& flat, const Call& call) {
  void* const data = flat.mutable_data_ptr();
  if (flat.scalar_type() == at::kBFloat16) return call(static_cast<kernels::BFloat16*>(data));
  if (flat.scalar_type() == at::kHalf) return call(static_cast<kernels::Half*>(data));
  return call(flat.mutable_data_ptr<float>());
}

using Gradients = decltype(kernels::FlatWindow::gradients);
Gradients gradients_at(const at::Tensor& flat) {
  return with_storage(flat, [](auto* data) { return Gradients(data); });
}

// Nothing for parameters that are their own master weights.
using Rounded = decltype(kernels::FlatWindow::rounded);
Rounded rounded_at(const at::Tensor& flat) {
  return with_storage(flat, [](auto* data) {
    if constexpr (std::is_same_v<decltype(data), float*>) {
      return Rounded();
    } else {
      return Rounded(data);
    }
  });
}

// What the rank updates of a block that is in memory.
kernels::FlatWindow own_window(BlockShard& block) {
  kernels::FlatWindow window{.parameters = block.master.mutable_data_ptr<float>(),
                             .gradients = gradients_at(block.gradient),
                             .rounded = rounded_at(own_kept(block)),
                             .begin = block.begin,
                             .count = block.count,
                             .segments = block.tensors};
  for (size_t i = 0; i < block.states.size(); ++i) window.states[i] = block.states[i].mutable_data_ptr<float>();
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
  const OffloadOptions& offload = options_.sharding.offload;
  require(!offload.optimizer || !optimizer_.needs_trust_ratios(), ErrorKind::kConfig,
          "LAMB with its state on disk is not there yet");
  std::vector<BlockPlacement> placements = place_blocks({.model = model,
                                                         .sharding = options_.sharding,
                                                         .rank = rank(),
                                                         .num_ranks = comm.size(),
                                                         .is_one_process = comm.is_one_process()});
  if (comm.size() > 1 || offload.parameters) queue_ = std::make_unique<comm::CommQueue>();
  if (stage_.parameters == Kept::kGroupShard) {
    const auto group = static_cast<int>(options.sharding.group_size);
    group_ = comm.split(rank() / group);
    replicas_ = comm.split(rank() % group);
  }
  for (size_t i = 0; i < placements.size(); ++i) add_block(*model.blocks()[i], std::move(placements[i]));
  if (offload.optimizer) open_disk();
}

void ShardedParameters::add_block(const models::Block& block, BlockPlacement placement) {
  const int64_t numel = block.layout().numel();
  const bool low_precision = options_.precision() != Precision::kFp32;
  const at::ScalarType dtype = scalar_type(options_.precision());
  BlockShard& shard = blocks_.emplace_back(std::move(placement));
  if (shard.is_kept_whole) {
    shard.whole = shard.is_shared ? comm_.share(numel, dtype) : at::zeros({numel}, dtype);
    shard.kept = shard.whole;
  } else {
    shard.whole = at::empty({numel}, dtype);
    GatherBuffers::strip(shard.whole);
    if (shard.keeps_parameters) shard.kept = at::zeros({shard.kept_count}, dtype);
  }
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  shard.gradient = at::zeros({shard.count}, scalar_type(options_.accumulation));
  shard.tensors = tensor_segments(block, options_.weight_decay);
  if (!low_precision && shard.keeps_parameters) {
    shard.master = window(shard.kept, shard.begin - shard.kept_begin, shard.count);
  }
  if (shard.is_on_disk) return;
  if (low_precision) shard.master = at::zeros({shard.count}, fp32);
  for (const optim::Optimizer::State& state : optimizer_.states()) {
    shard.states.push_back(at::full({shard.count}, state.initial, fp32));
  }
}

// fp32 parameters that are kept in memory are their own master weights; only what is nowhere else goes to disk.
void ShardedParameters::open_disk() {
  const OffloadOptions& offload = options_.sharding.offload;
  const bool low_precision = options_.precision() != Precision::kFp32;
  std::vector<at::ScalarType> arrays;
  if (low_precision || offload.parameters) master_on_disk_ = 0;
  if (master_on_disk_) arrays.push_back(at::kFloat);
  if (low_precision && offload.parameters) {
    rounded_on_disk_ = static_cast<int>(arrays.size());
    arrays.push_back(scalar_type(options_.precision()));
  }
  states_on_disk_ = static_cast<int>(arrays.size());
  arrays.insert(arrays.end(), optimizer_.states().size(), at::kFloat);
  std::vector<int64_t> counts;
  for (const BlockShard& block : blocks_) counts.push_back(block.is_on_disk ? block.count : 0);
  disk_ = std::make_unique<OffloadedStates>(counts, std::move(arrays),
                                            OffloadedStates::Options{.folder = offload.folder,
                                                                     .window_elements = offload.window_elements,
                                                                     .buffers = offload.buffers,
                                                                     .file = offload.file});
  for (size_t k = 0; k < optimizer_.states().size(); ++k) {
    if (optimizer_.states()[k].initial == 0) continue;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].is_on_disk) set_state(i, k, at::full({blocks_[i].count}, optimizer_.states()[k].initial));
    }
  }
}

at::Tensor ShardedParameters::master(size_t i) {
  return blocks_[i].master.defined() ? blocks_[i].master : disk_->read(i, *master_on_disk_);
}

at::Tensor ShardedParameters::state(size_t i, size_t k) {
  return blocks_[i].is_on_disk ? disk_->read(i, states_on_disk_ + static_cast<int>(k)) : blocks_[i].states[k];
}

void ShardedParameters::set_state(size_t i, size_t k, const at::Tensor& own) {
  if (blocks_[i].is_on_disk) {
    disk_->write(i, states_on_disk_ + static_cast<int>(k), own);
  } else {
    blocks_[i].states[k].copy_(own);
  }
}

at::Tensor ShardedParameters::gradient_piece(size_t i) const {
  const BlockShard& block = blocks_[i];
  return window(block.gradient, block.layout.begin(rank()) - block.begin, block.layout.size(rank()));
}

void ShardedParameters::assign(size_t i, const at::Tensor& whole_fp32) {
  BlockShard& block = blocks_[i];
  const at::Tensor own = own_part(i, whole_fp32);
  if (block.master.defined()) block.master.copy_(own);
  if (block.is_on_disk && master_on_disk_) disk_->write(i, *master_on_disk_, own);
  if (block.is_on_disk && rounded_on_disk_) disk_->write(i, *rounded_on_disk_, own.to(block.whole.scalar_type()));
  if (!block.keeps_parameters) return comm_.barrier();
  // A rank writes only its own part of a shared buffer; the others are writing theirs.
  const int64_t begin = block.is_shared ? block.begin : block.kept_begin;
  const int64_t size = block.is_shared ? block.count : block.kept.numel();
  window(block.kept, begin - block.kept_begin, size).copy_(window(whole_fp32, begin, size));
  comm_.barrier();
}

void ShardedParameters::hold(size_t i) {
  BlockShard& block = blocks_[i];
  if (block.users++ > 0 || block.is_kept_whole) return;
  buffers_.attach(block.whole);
  if (block.keeps_parameters) window(block.whole, block.kept_begin, block.kept.numel()).copy_(block.kept);
  if (!queue_) return;
  block.ticket = queue_->post([this, i] {
    BlockShard& arriving = blocks_[i];
    if (!arriving.keeps_parameters && arriving.count > 0) {
      const int array = rounded_on_disk_ ? *rounded_on_disk_ : *master_on_disk_;
      disk_->read_into(i, array, window(arriving.whole, arriving.begin, arriving.count).mutable_data_ptr());
    }
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
    with_storage(piece, [&](const auto* data) {
      kernels::sum_of_squares(data, piece.numel(), std::span(next + first, static_cast<size_t>(count)));
    });
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
  if (disk_) update_disk(step, update.betas);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (optimizer_.needs_trust_ratios()) {
      optimizer_.apply(own_window(blocks_[i]), step, ratios[i], update.betas);
    } else if (!blocks_[i].is_on_disk) {
      optimizer_.update(own_window(blocks_[i]), step, update.betas);
    }
    complete(blocks_[i]);
  }
  comm_.barrier();  // shared parameters are complete when every rank has updated its part
}

void ShardedParameters::update_disk(const kernels::UpdateStep& step, const std::optional<optim::Betas>& betas) {
  disk_->update_all([&](const OffloadedStates::Window& window, std::span<void* const> arrays) {
    BlockShard& block = blocks_[window.block];
    const auto array = [&](int k) { return static_cast<float*>(arrays[static_cast<size_t>(k)]); };
    kernels::FlatWindow flat{.parameters = block.master.defined()
                                               ? block.master.mutable_data_ptr<float>() + window.begin
                                               : array(*master_on_disk_),
                             .gradients = gradients_at(block.gradient.narrow(0, window.begin, window.count)),
                             .begin = block.begin + window.begin,
                             .count = window.count,
                             .segments = block.tensors};
    for (size_t k = 0; k < optimizer_.states().size(); ++k)
      flat.states[k] = array(states_on_disk_ + static_cast<int>(k));
    if (block.keeps_parameters) {
      flat.rounded = rounded_at(own_kept(block).narrow(0, window.begin, window.count));
    } else if (rounded_on_disk_) {
      void* const rounded = arrays[static_cast<size_t>(*rounded_on_disk_)];
      if (options_.precision() == Precision::kFp16) {
        flat.rounded = static_cast<kernels::Half*>(rounded);
      } else {
        flat.rounded = static_cast<kernels::BFloat16*>(rounded);
      }
    }
    optimizer_.update(flat, step, betas);
  });
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
  if (block.is_shared || stage_.optimizer == Kept::kWhole || !block.keeps_parameters) return;
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
  return window(whole, blocks_[i].begin, blocks_[i].count);
}

}  // namespace strake::training
