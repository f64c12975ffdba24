#include "strake/training/sharded_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strake/core/error.h"
#include "strake/training/device.h"
#include "strake/training/hybrid_layout.h"

namespace strake::training {
namespace {

using tensors::ShardLayout;

constexpr int64_t kPackedWeights = 4;  // of the largest size: so far may ranks be apart
constexpr int kEntryBits = 32;         // of a packed weight's name

// The unit's tensors as Hugging Face has them, where LAMB takes its norms: a fused projection is several.
std::vector<kernels::TensorSegment> tensor_segments(const models::Block& block, const Unit& unit,
                                                    const TrainingOptions& options) {
  std::vector<kernels::TensorSegment> segments;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const auto& entry = unit.layout.entries()[i];
    const models::ParameterSpec& parameter = block.parameters()[unit.parameters[i]];
    const bool is_exempt = parameter.decay == models::WeightDecay::kExempt && !options.decays_all();
    const auto parts = static_cast<int64_t>(std::max<size_t>(1, parameter.checkpoint_names.size()));
    const int64_t size = (entry.end - entry.begin) / parts;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = entry.begin + part * size;
      segments.push_back({begin, begin + size, is_exempt ? 0 : options.weight_decay});
    }
  }
  return segments;
}

// Of a matrix that a block multiplies with; the first block, the embeddings, only looks rows up.
int64_t largest_weight(const models::Model& model) {
  int64_t largest = 0;
  for (size_t i = 1; i < model.blocks().size(); ++i) {
    for (const auto& entry : model.blocks()[i]->layout().entries()) {
      if (entry.shape.size() == 2) largest = std::max(largest, entry.end - entry.begin);
    }
  }
  return largest;
}

// Copies parameters of a block's buffer into the unit's, or back.
enum class Copy { kToUnit, kToBlock };
void copy_parameters(const models::Block& block, const at::Tensor& whole, const Unit& unit, const at::Tensor& own,
                     Copy direction) {
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const at::Tensor in_block = tensors::FlatLayout::view(whole, block.layout().entries()[unit.parameters[i]]);
    const at::Tensor in_unit = tensors::FlatLayout::view(own, unit.layout.entries()[i]);
    if (direction == Copy::kToUnit) {
      in_unit.copy_(in_block);
    } else {
      in_block.copy_(in_unit);
    }
  }
}

}  // namespace

ShardedParameters::ShardedParameters(const models::Model& model, comm::Comm& comm, const TrainingOptions& options)
    : model_(model),
      comm_(comm),
      options_(options),
      stage_(options.sharding.stage),
      device_(device_of(options)),
      units_(model),
      optimizer_(options.optimizer_settings()),
      uses_(model, units_) {
  if (comm.size() > 1 && comm.is_one_process() && device_.is_cpu()) {
    const auto element = static_cast<int64_t>(c10::elementSize(scalar_type(options_.precision())));
    packed_weights_ = comm.share<kernels::PackedWeights>(kPackedWeights * largest_weight(model_) * element);
  }
  const OffloadOptions& offload = options_.sharding.offload;
  std::vector<UnitPlacement> placements = place_units({.units = units_,
                                                       .sharding = options_.sharding,
                                                       .rank = rank(),
                                                       .num_ranks = comm.size(),
                                                       .shares_memory = comm.shares_memory() && device_.is_cpu()});
  if (comm.size() > 1 || offload.parameters) queue_ = std::make_unique<comm::CommQueue>();
  if (stage_.parameters == Kept::kGroupShard) {
    const auto group = static_cast<int>(options.sharding.group_size);
    group_ = comm.split(rank() / group);
    replicas_ = comm.split(rank() % group);
    if (offload.parameters) {
      copies_ = std::make_unique<ReplicaCopies>(placements, scalar_type(options_.precision()), offload);
    }
  }
  for (size_t u = 0; u < units_.size(); ++u) add_unit(units_[u], std::move(placements[u]));
  if (offload.optimizer) open_disk();
}

// While an error unwinds, parameters may be on their way.
ShardedParameters::~ShardedParameters() {
  if (queue_) queue_->settle();
}

void ShardedParameters::add_unit(const Unit& unit, UnitPlacement placement) {
  const int64_t numel = unit.layout.numel();
  const at::TensorOptions on_device(device_);
  const at::TensorOptions parameter_type = on_device.dtype(scalar_type(options_.precision()));
  UnitShard& shard = shards_.emplace_back(std::move(placement));
  if (shard.is_kept_whole) {
    shard.whole = shard.is_shared ? comm_.share_zeros(numel, scalar_type(options_.precision()))
                                  : at::zeros({numel}, parameter_type);
    shard.kept = shard.whole;
  } else {
    shard.whole = at::empty({numel}, parameter_type);
    GatherBuffers::strip(shard.whole);
    if (shard.keeps_parameters) shard.kept = at::zeros({shard.kept_count}, kept_type(shard));
  }
  if (!shard.keeps_parameters && !device_.is_cpu()) {
    shard.pages = at::empty({shard.kept_count}, parameter_type.device(at::kCPU));
    GatherBuffers::strip(shard.pages);
  }
  const at::TensorOptions with_states(shard.has_states_on_host ? at::Device(at::kCPU) : device_);
  const at::TensorOptions master_type = with_states.dtype(scalar_type(options_.master));
  if (!shard.is_frozen) {
    shard.gradient = at::zeros({shard.count}, on_device.dtype(scalar_type(options_.accumulation)));
    shard.tensors = tensor_segments(*model_.blocks()[unit.block], unit, options_);
  }
  if (!options_.has_master_copies() && shard.keeps_parameters) {
    shard.master = window(shard.kept, shard.begin - shard.kept_begin, shard.count);
  }
  if (shard.is_on_disk) return;
  if (options_.has_master_copies()) shard.master = at::zeros({shard.count}, master_type);
  if (shard.is_frozen) return;
  for (const optim::Optimizer::State& state : optimizer_.states()) {
    shard.states.push_back(at::full({shard.count}, state.initial, with_states.dtype(state_type())));
  }
}

at::TensorOptions ShardedParameters::kept_type(const UnitShard& unit) const {
  const auto type = at::TensorOptions(device_).dtype(scalar_type(options_.precision()));
  if (!unit.is_kept_on_host) return type;
  return type.device(at::kCPU).pinned_memory(!device_.is_cpu() && options_.sharding.offload.pins_parameters);
}

void ShardedParameters::open_disk() {
  std::vector<at::ScalarType> arrays;
  for (const Precision weights : options_.weights_on_disk()) arrays.push_back(scalar_type(weights));
  if (!arrays.empty()) master_on_disk_ = 0;
  if (arrays.size() > 1) rounded_on_disk_ = 1;
  open_disk_of_frozen(arrays);
  states_on_disk_ = static_cast<int>(arrays.size());
  arrays.insert(arrays.end(), optimizer_.states().size(), state_type());
  std::vector<int64_t> counts;
  for (const UnitShard& unit : shards_) counts.push_back(unit.is_on_disk && !unit.is_frozen ? unit.count : 0);
  const int buffers = options_.sharding.offload.buffers;
  disk_ = std::make_unique<OffloadedStates>(counts, std::move(arrays), disk_options(buffers));
  for (size_t k = 0; k < optimizer_.states().size(); ++k) {
    if (optimizer_.states()[k].initial == 0) continue;
    for (size_t u = 0; u < shards_.size(); ++u) {
      const UnitShard& unit = shards_[u];
      if (!unit.is_on_disk || unit.is_frozen) continue;
      set_state(u, k, at::full({unit.count}, optimizer_.states()[k].initial, state_type()));
    }
  }
}

// A file of their own, as an update goes over the other from end to end.
void ShardedParameters::open_disk_of_frozen(std::vector<at::ScalarType> arrays) {
  const bool any = std::ranges::any_of(shards_, [](const auto& unit) { return unit.is_on_disk && unit.is_frozen; });
  if (!any || arrays.empty()) return;
  std::vector<int64_t> counts;
  for (const UnitShard& unit : shards_) counts.push_back(unit.is_on_disk && unit.is_frozen ? unit.count : 0);
  frozen_disk_ =
      std::make_unique<OffloadedStates>(counts, std::move(arrays), disk_options(OffloadOptions::kBuffersOfFrozen));
}

OffloadedStates::Options ShardedParameters::disk_options(int buffers) const {
  const OffloadOptions& offload = options_.sharding.offload;
  return {
      .folder = offload.folder, .window_elements = offload.window_elements, .buffers = buffers, .file = offload.file};
}

at::Tensor ShardedParameters::state(size_t u, size_t k) {
  return shards_[u].is_on_disk ? disk_->read(u, states_on_disk_ + static_cast<int>(k)) : shards_[u].states[k].cpu();
}

void ShardedParameters::set_state(size_t u, size_t k, const at::Tensor& own) {
  if (shards_[u].is_on_disk) {
    disk_->write(u, states_on_disk_ + static_cast<int>(k), own);
  } else {
    shards_[u].states[k].copy_(own);
  }
}

at::Tensor ShardedParameters::gradient_piece(size_t u) const {
  const UnitShard& unit = shards_[u];
  return window(unit.gradient, unit.layout.begin(rank()) - unit.begin, unit.layout.size(rank()));
}

void ShardedParameters::assign(size_t i, const at::Tensor& whole_fp32) {
  const auto units = units_.of_block(i);
  if (units.size() == 1) return assign_unit(units[0], whole_fp32);
  for (const size_t u : units) {
    const at::Tensor whole = at::zeros({units_[u].layout.numel()});
    copy_parameters(*model_.blocks()[i], whole_fp32, units_[u], whole, Copy::kToUnit);
    assign_unit(u, whole);
  }
}

void ShardedParameters::assign_unit(size_t u, const at::Tensor& whole_fp32) {
  ++version_;
  UnitShard& unit = shards_[u];
  const at::Tensor own = own_part(u, whole_fp32);
  if (unit.master.defined()) unit.master.copy_(own);
  if (unit.is_on_disk && master_on_disk_) disk_of(unit).write(u, *master_on_disk_, own);
  if (unit.is_on_disk && rounded_on_disk_) disk_of(unit).write(u, *rounded_on_disk_, own);
  if (copies_ && !unit.keeps_parameters) {
    buffers_.attach(unit.whole);
    window(unit.whole, unit.kept_begin, unit.kept_count).copy_(window(whole_fp32, unit.kept_begin, unit.kept_count));
    with_pages(u, DiskTransfer::kWrite, [&](const at::Tensor& kept) { copies_->write(u, kept); });
    buffers_.detach(unit.whole);
  }
  if (!unit.keeps_parameters) return comm_.barrier();
  // A rank writes only its own part of a shared buffer; the others are writing theirs.
  const int64_t begin = unit.is_shared ? unit.begin : unit.kept_begin;
  const int64_t size = unit.is_shared ? unit.count : unit.kept.numel();
  window(unit.kept, begin - unit.kept_begin, size).copy_(window(whole_fp32, begin, size));
  comm_.barrier();
}

at::Tensor ShardedParameters::whole_weights(size_t i) {
  const auto units = units_.of_block(i);
  if (units.size() == 1) return whole_weights_of_unit(units[0]);
  const models::Block& block = *model_.blocks()[i];
  at::Tensor whole = at::zeros({block.layout().numel()});
  for (const size_t u : units) {
    copy_parameters(block, whole, units_[u], whole_weights_of_unit(u), Copy::kToBlock);
  }
  return whole;
}

// What is on disk is read to where it is gathered.
at::Tensor ShardedParameters::whole_weights_of_unit(size_t u) {
  UnitShard& unit = shards_[u];
  const bool is_there = unit.is_shared && unit.master.defined() && !options_.has_master_copies();
  if (is_there && unit.whole.scalar_type() == at::kFloat) return unit.whole;
  if (unit.master.defined()) return gather_whole(u, unit.master);
  at::Tensor whole = at::empty({unit.whole.numel()}, at::kFloat);
  disk_of(unit).read(u, *master_on_disk_, own_part(u, whole));
  comm_.all_gather(whole, unit.layout);
  return whole;
}

void ShardedParameters::bring(size_t u) {
  UnitShard& unit = shards_[u];
  if (unit.is_kept_whole) return;
  buffers_.attach(unit.whole);
  // From page-locked memory a GPU copies when its turn comes; nothing is written there before the step has ended.
  if (unit.keeps_parameters) window(unit.whole, unit.kept_begin, unit.kept.numel()).copy_(unit.kept, true);
  if (!queue_) return;
  unit.ticket = queue_->post([this, u] {
    UnitShard& arriving = shards_[u];
    if (!arriving.keeps_parameters) {
      with_pages(u, DiskTransfer::kRead, [&](const at::Tensor& kept) {
        read_own(u, kept);
        if (copies_) copies_->read(u, kept);
      });
    }
    if (group_) {
      group_->all_gather(arriving.whole, group_layout(arriving.layout, group_->size()));
    } else {
      comm_.all_gather(arriving.whole, arriving.layout);
    }
  });
}

template <typename Use>
void ShardedParameters::with_pages(size_t u, DiskTransfer transfer, const Use& use) {
  UnitShard& unit = shards_[u];
  const at::Tensor kept = window(unit.whole, unit.kept_begin, unit.kept_count);
  if (kept.is_cpu() || unit.kept_count == 0) return use(kept);
  pages_.attach(unit.pages);
  if (transfer == DiskTransfer::kWrite) unit.pages.copy_(kept);
  use(unit.pages);
  if (transfer == DiskTransfer::kRead) kept.copy_(unit.pages);
  pages_.detach(unit.pages);
}

// From disk into what the rank keeps.
void ShardedParameters::read_own(size_t u, const at::Tensor& kept) {
  UnitShard& unit = shards_[u];
  if (unit.count == 0) return;
  const int array = rounded_on_disk_ ? *rounded_on_disk_ : *master_on_disk_;
  disk_of(unit).read_into(u, array, window(kept, unit.begin - unit.kept_begin, unit.count).mutable_data_ptr());
}

void ShardedParameters::drop(size_t u) {
  UnitShard& unit = shards_[u];
  if (!unit.is_kept_whole) buffers_.detach(unit.whole);
}

void ShardedParameters::prefetch(size_t i) {
  uses_.prefetch(i, [this](size_t u) { bring(u); });
}

models::Parameters ShardedParameters::gather(size_t i, const Sinks& sinks) {
  prefetch(i);
  if (queue_) {
    uses_.for_each_needed(i, [this](size_t u) { queue_->wait_for(shards_[u].ticket); });
  }
  const models::Block& block = *model_.blocks()[i];
  models::Parameters views;
  for (size_t p = 0; p < block.parameters().size(); ++p) views.push_back(view(i, p, sinks));
  for (const models::TiedParameter& tied : block.tied()) views.push_back(view(tied.block, tied.parameter, sinks));
  return views;
}

models::Parameter ShardedParameters::view(size_t block, size_t parameter, const Sinks& sinks) const {
  const Units::Place& place = units_.place(block, parameter);
  const Unit& unit = units_[place.unit];
  return {.value = tensors::FlatLayout::view(shards_[place.unit].whole, unit.layout.entries()[place.entry]),
          .index = parameter,
          .sink = sinks && !unit.is_frozen() ? sinks(block) : nullptr,
          .pack = {.weights = packed_weights_.get(),
                   .name = {.matrix = (uint64_t{place.unit} << kEntryBits) | place.entry, .version = version_}}};
}

void ShardedParameters::release(size_t i) {
  uses_.release(i, [this](size_t u) { drop(u); });
}

void ShardedParameters::complete(size_t u) {
  UnitShard& unit = shards_[u];
  if (unit.is_shared || unit.owns_whole) return;
  if (replicas_ && !unit.is_kept_whole) return complete_replica(u);
  if (unit.is_kept_whole) comm_.all_gather(unit.whole, unit.layout);
}

// What is on disk goes through the buffer into which the unit is gathered for passes.
void ShardedParameters::complete_replica(size_t u) {
  UnitShard& unit = shards_[u];
  const ShardLayout layout = replica_layout(unit.layout, group_->size(), group_->rank());
  if (unit.keeps_parameters) return replicas_->all_gather(unit.kept, layout);
  buffers_.attach(unit.whole);
  with_pages(u, DiskTransfer::kRead, [&](const at::Tensor& kept) { read_own(u, kept); });
  at::Tensor kept = window(unit.whole, unit.kept_begin, unit.kept_count);
  replicas_->all_gather(kept, layout);
  with_pages(u, DiskTransfer::kWrite, [&](const at::Tensor& pages) { copies_->write(u, pages); });
  buffers_.detach(unit.whole);
}

at::Tensor ShardedParameters::gather_whole(size_t u, const at::Tensor& own) {
  if (shards_[u].owns_whole || comm_.size() == 1) return own.to(at::kCPU, at::kFloat);
  at::Tensor whole = at::zeros({shards_[u].whole.numel()}, at::kFloat);
  own_part(u, whole).copy_(own);
  comm_.all_gather(whole, shards_[u].layout);
  return whole;
}

at::Tensor ShardedParameters::own_part(size_t u, const at::Tensor& whole) const {
  return window(whole, shards_[u].begin, shards_[u].count);
}

}  // namespace strake::training
