// How ShardedParameters take a step: the norm of the gradient, and one pass of the optimizer over what the rank keeps.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "strake/core/threads.h"
#include "strake/kernels/global_norm.h"
#include "strake/models/place.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training {
namespace {

static_assert(kernels::kSquaresChunk == tensors::ShardLayout::kAlignment,
              "shards must begin where the norm's partial sums begin");

// The part of what is kept that the rank updates.
at::Tensor own_kept(const UnitShard& unit) { return window(unit.kept, unit.begin - unit.kept_begin, unit.count); }

// What the rank updates of a unit that is in memory: `count` elements of its own part.
UpdatedWindow own_window(const UnitShard& unit, int64_t begin, int64_t count) {
  UpdatedWindow updated{.parameters = window(unit.master, begin, count),
                        .gradients = window(unit.gradient, begin, count),
                        .rounded = {},
                        .states = {},
                        .begin = unit.begin + begin};
  if (unit.kept.scalar_type() != unit.master.scalar_type()) updated.rounded = window(own_kept(unit), begin, count);
  for (const at::Tensor& state : unit.states) updated.states.push_back(window(state, begin, count));
  return updated;
}
UpdatedWindow own_window(const UnitShard& unit) { return own_window(unit, 0, unit.count); }

}  // namespace

double ShardedParameters::gradient_norm() {
  int64_t num_chunks = 0;
  for (const UnitShard& unit : shards_) {
    if (!unit.is_frozen) num_chunks += kernels::num_squares_chunks(unit.whole.numel());
  }
  const at::Tensor on_device = at::zeros({num_chunks}, at::TensorOptions(device_).dtype(at::kDouble));
  auto* next = on_device.mutable_data_ptr<double>();
  for (size_t u = 0; u < shards_.size(); ++u) {
    if (shards_[u].is_frozen) continue;
    const at::Tensor piece = gradient_piece(u);
    const int64_t first = shards_[u].layout.begin(rank()) / kernels::kSquaresChunk;
    const int64_t count = kernels::num_squares_chunks(piece.numel());
    with_storage(piece, [&](const auto* data) {
      const std::span<double> sums(next + first, static_cast<size_t>(count));
      std::visit([&](const auto& place) { kernels::sum_of_squares(data, piece.numel(), sums, place); },
                 models::place_of(piece));
    });
    next += kernels::num_squares_chunks(shards_[u].whole.numel());
  }
  at::Tensor partial = on_device.cpu();
  comm_.all_reduce(partial);  // exact: each chunk is summed by one rank, the others have zero
  return std::sqrt(kernels::add_in_order({partial.const_data_ptr<double>(), static_cast<size_t>(num_chunks)}));
}

void ShardedParameters::update(const Update& update) {
  const kernels::UpdateStep step{.learning_rate = update.learning_rate,
                                 .number = update.step,
                                 .gradient_scale = static_cast<float>(update.gradient_scale)};
  if (stage_.reduced() == Reduced::kToAllRanks) {
    for (UnitShard& unit : shards_) {
      if (!unit.is_frozen) comm_.all_gather(unit.gradient, unit.layout);
    }
  }
  std::vector<std::vector<double>> ratios;
  if (optimizer_.needs_trust_ratios()) ratios = trust_ratios(step, update.betas);
  const auto apply = [&](const UpdatedWindow& updated, size_t u) {
    const kernels::FlatWindow window = flat_window(updated, shards_[u].tensors);
    const kernels::Place place = models::place_of(updated.gradients);
    if (optimizer_.needs_trust_ratios()) {
      optimizer_.apply(window, step, ratios[u], update.betas, place);
    } else {
      optimizer_.update(window, step, update.betas, place);
    }
  };
  for_each_disk_window(WindowUse::kUpdate, apply);
  for (size_t u = 0; u < shards_.size(); ++u) {
    if (shards_[u].is_frozen) continue;
    for_each_window(u, WindowUse::kUpdate, apply);
    complete(u);
  }
  ++version_;
  comm_.barrier();  // shared parameters are complete when every rank has updated its part
}

void ShardedParameters::for_each_disk_window(WindowUse how, const UseWindow& use) {
  if (!disk_) return;
  disk_->update_all([&](const OffloadedStates::Window& window, std::span<void* const> arrays) {
    use_on_host(disk_window(window, arrays), how, [&](const UpdatedWindow& host) { use(host, window.unit); });
  });
}

void ShardedParameters::for_each_window(size_t u, WindowUse how, const UseWindow& use) {
  const UnitShard& unit = shards_[u];
  if (unit.is_on_disk) return;
  if (unit.has_states_on_host) {
    for_each_host_window(unit, [&](const UpdatedWindow& updated) {
      use_on_host(updated, how, [&](const UpdatedWindow& host) { use(host, u); });
    });
  } else if (unit.is_kept_on_host) {
    const int64_t size = options_.sharding.offload.window_elements;
    for (int64_t begin = 0; begin < unit.count; begin += size) {
      const UpdatedWindow updated = own_window(unit, begin, std::min(size, unit.count - begin));
      const UpdatedWindow here = copy_to_device(updated, device_);
      use(here, u);
      if (how == WindowUse::kUpdate) copy_back(here, updated);
    }
  } else {
    use(own_window(unit), u);
  }
}

template <typename Use>
void ShardedParameters::use_on_host(const UpdatedWindow& updated, WindowUse how, const Use& use) const {
  if (device_.is_cpu()) return use(updated);
  const bool pins = options_.sharding.offload.pins_windows;
  const UpdatedWindow host = copy_to_host(updated, device_, pins ? HostMemory::kPinned : HostMemory::kPaged);
  use(host);
  if (how == WindowUse::kUpdate) copy_back(host, updated);
}

// Several at once, so that one is copied while another is updated.
template <typename Use>
void ShardedParameters::for_each_host_window(const UnitShard& unit, const Use& use) const {
  const int64_t size = options_.sharding.offload.window_elements;
  const int64_t num_windows = (unit.count + size - 1) / size;
  const auto threads = static_cast<int>(std::min<int64_t>(num_threads(), num_windows));
  run_side_by_side(threads, [&](int id) {
    for (int64_t w = id; w < num_windows; w += threads) {
      use(own_window(unit, w * size, std::min(size, unit.count - w * size)));
    }
  });
}

// What the rank updates of a unit that is on disk: windows begin where LAMB's partial sums begin.
UpdatedWindow ShardedParameters::disk_window(const OffloadedStates::Window& place,
                                             std::span<void* const> arrays) const {
  const UnitShard& unit = shards_[place.unit];
  const auto array = [&](int k, at::ScalarType type) {
    return at::from_blob(arrays[static_cast<size_t>(k)], {place.count}, type);
  };
  UpdatedWindow updated{.parameters = unit.master.defined() ? window(unit.master, place.begin, place.count)
                                                            : array(*master_on_disk_, scalar_type(options_.master)),
                        .gradients = window(unit.gradient, place.begin, place.count),
                        .rounded = {},
                        .states = {},
                        .begin = unit.begin + place.begin};
  for (size_t k = 0; k < optimizer_.states().size(); ++k) {
    updated.states.push_back(array(states_on_disk_ + static_cast<int>(k), state_type()));
  }
  if (options_.has_master_copies()) {
    updated.rounded = unit.keeps_parameters ? window(own_kept(unit), place.begin, place.count)
                                            : array(*rounded_on_disk_, scalar_type(options_.precision()));
  }
  return updated;
}

// Every sum is taken in one place, and zero in all others: adding them up is exact.
std::vector<std::vector<double>> ShardedParameters::trust_ratios(const kernels::UpdateStep& step,
                                                                 const std::optional<optim::Betas>& betas) {
  static_assert(sizeof(kernels::LambSums) == 2 * sizeof(double));
  int64_t num_sums = 0;
  for (const UnitShard& unit : shards_) num_sums += kernels::num_lamb_sums(unit.tensors);
  const auto zeros = [&](at::Device device) {
    return at::zeros({2 * num_sums}, at::TensorOptions(device).dtype(at::kDouble));
  };
  at::Tensor all = zeros(at::kCPU);
  const at::Tensor on_device = device_.is_cpu() ? all : zeros(device_);
  std::vector<int64_t> first;  // by unit
  for (int64_t next = 0; const UnitShard& unit : shards_) {
    first.push_back(next);
    next += kernels::num_lamb_sums(unit.tensors);
  }
  const auto sums_of = [&](size_t u, const at::Tensor& flat) {
    return std::span(static_cast<kernels::LambSums*>(flat.mutable_data_ptr()) + first[u],
                     static_cast<size_t>(kernels::num_lamb_sums(shards_[u].tensors)));
  };
  const auto prepare = [&](const UpdatedWindow& updated, size_t u) {
    const at::Tensor& taken = updated.gradients.is_cpu() ? all : on_device;
    optimizer_.prepare(flat_window(updated, shards_[u].tensors), step, sums_of(u, taken), betas,
                       models::place_of(updated.gradients));
  };
  for_each_disk_window(WindowUse::kPrepare, prepare);
  for (size_t u = 0; u < shards_.size(); ++u) {
    if (!shards_[u].is_frozen) for_each_window(u, WindowUse::kPrepare, prepare);
  }
  if (!device_.is_cpu()) all.add_(on_device.cpu());
  if (stage_.updating != Kept::kWhole) comm_.all_reduce(all);  // ranks that update everything have all of them
  std::vector<std::vector<double>> ratios;
  for (size_t u = 0; u < shards_.size(); ++u) {
    ratios.push_back(optimizer_.trust_ratios(shards_[u].tensors, sums_of(u, all)));
  }
  return ratios;
}

}  // namespace strake::training
