#include "strake/training/memory_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/models/planned_graph.h"
#include "strake/training/offloaded_states.h"
#include "strake/training/replica_copies.h"
#include "strake/training/units.h"

namespace strake::training {
namespace {

using models::MemoryMeter;
using models::MemoryUse;
using models::PlannedFold;
using models::PlannedGradients;
using models::PlannedGraph;
using models::PlannedProducts;
using models::PlannedTensor;

constexpr int64_t kFp32 = sizeof(float);
// Of the batch itself: ids, types and positions in 32 bits, rows in 64.
constexpr int64_t kBatchBytesPerToken = 20;

int64_t element_size(const TrainingOptions& options) { return element_size(options.precision()); }

// Buffers that are kept for the next user of the same size.
class BufferPool {
 public:
  BufferPool(MemoryMeter& meter, MemoryUse use) : meter_(meter), use_(use) {}
  void take(int64_t bytes) {
    int& free = free_[bytes];
    if (free > 0) {
      --free;
    } else {
      meter_.take(use_, bytes);
    }
  }
  void put_back(int64_t bytes) { ++free_[bytes]; }
  // Frees what was put back.
  void clear() {
    for (const auto& [bytes, count] : free_) meter_.give_back(use_, bytes * count);
    free_.clear();
  }

 private:
  MemoryMeter& meter_;
  MemoryUse use_;
  std::map<int64_t, int> free_;
};

// ShardedParameters: what is kept, and what is gathered for passes.
class PlannedParameters {
 public:
  PlannedParameters(const MemoryPlanRequest& request, const Units& units, int rank, MemoryMeter& meter)
      : model_(request.model),
        units_(units),
        element_size_(element_size(request.options)),
        is_hybrid_(request.options.sharding.stage.parameters == Kept::kGroupShard),
        placements_(place_units(request, units, rank)),
        users_(units.size()),
        requested_(request.model.blocks().size()),
        buffers_(meter, MemoryUse::kGatherBuffers) {
    keep(request.options, meter);
    keep_windows(request.options, meter);
    load(meter);
  }

  // Blocks are written one at a time, and their weights are complete on every rank then. Optimizer states, of which a
  // rank writes its own, take no more than that.
  void save(const MemoryPlanRequest& request, MemoryMeter& meter) {
    buffers_.clear();
    const auto copied = [&](size_t u) {
      const bool is_in_place = placements_[u].owns_whole || request.num_ranks == 1;
      const bool is_there = is_in_place && !placements_[u].is_on_disk && request.options.master == Precision::kFp32;
      return is_there ? 0 : units_[u].layout.numel() * kFp32;
    };
    for (size_t i = 0; i < model_.blocks().size(); ++i) {
      const std::span<const size_t> units = units_.of_block(i);
      const auto whole =
          meter.lend(MemoryUse::kGatherBuffers, units.size() > 1 ? model_.blocks()[i]->layout().numel() * kFp32 : 0);
      for (const size_t u : units) meter.lend(MemoryUse::kGatherBuffers, copied(u));
    }
  }

  int64_t shared_bytes() const { return shared_bytes_; }
  // See ShardedParameters::open_disk.
  int64_t disk_bytes(const TrainingOptions& options) const {
    const OffloadOptions& offload = options.sharding.offload;
    if (!offload.optimizer) return 0;
    std::vector<at::ScalarType> arrays;
    if (options.has_master_copies() || offload.parameters) arrays.push_back(scalar_type(options.master));
    if (options.has_master_copies() && offload.parameters) arrays.push_back(scalar_type(options.precision()));
    std::array<std::vector<int64_t>, 2> counts;
    for (const UnitPlacement& unit : placements_) {
      if (unit.is_on_disk) counts[unit.is_frozen ? 1 : 0].push_back(unit.count);
    }
    uint64_t bytes = OffloadedStates::disk_bytes(counts[1], arrays, offload.window_elements);
    arrays.insert(arrays.end(), optim::Optimizer(options.optimizer_settings()).states().size(),
                  scalar_type(options.state_precision()));
    bytes += OffloadedStates::disk_bytes(counts[0], arrays, offload.window_elements);
    if (is_hybrid_ && offload.parameters) {
      bytes += ReplicaCopies::disk_bytes(placements_, scalar_type(options.precision()));
    }
    return static_cast<int64_t>(bytes);
  }
  const UnitPlacement& unit(size_t u) const { return placements_[u]; }

  void prefetch(size_t i) {
    if (i >= requested_.size() || requested_[i] != 0) return;
    requested_[i] = 1;
    for (const size_t u : units_.of_block(i)) hold(u);
    for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) hold(unit_of(tied));
  }
  void release(size_t i) {
    requested_[i] = 0;
    for (const size_t u : units_.of_block(i)) drop(u);
    for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) drop(unit_of(tied));
  }

 private:
  // Of a parameter.
  static int64_t state_bytes(const TrainingOptions& options) {
    const optim::Optimizer optimizer(options.optimizer_settings());
    return static_cast<int64_t>(optimizer.states().size()) * element_size(options.state_precision());
  }
  void keep(const TrainingOptions& options, MemoryMeter& meter) {
    const int64_t master_size = element_size(options.master);
    for (const UnitPlacement& unit : placements_) {
      const int64_t kept = unit.keeps_parameters ? unit.kept_count * element_size_ : 0;
      meter.take(MemoryUse::kParameters, kept);
      if (unit.is_shared) shared_bytes_ += kept;
      const int64_t in_memory = unit.is_on_disk ? 0 : unit.count;
      if (options.has_master_copies()) meter.take(MemoryUse::kMasterWeights, in_memory * master_size);
      if (unit.is_frozen) continue;
      meter.take(MemoryUse::kGradients, unit.count * element_size(options.accumulation));
      meter.take(MemoryUse::kOptimizer, in_memory * state_bytes(options));
    }
  }
  // Of what is on disk: see ShardedParameters::open_disk and open_disk_of_frozen.
  void keep_windows(const TrainingOptions& options, MemoryMeter& meter) {
    const OffloadOptions& offload = options.sharding.offload;
    if (!offload.optimizer) return;
    const int64_t master_size = element_size(options.master);
    const bool has_copies = options.has_master_copies();
    const int64_t weights_size =
        (has_copies || offload.parameters ? master_size : 0) + (has_copies && offload.parameters ? element_size_ : 0);
    meter.take(MemoryUse::kOptimizer, elements_in_windows(offload, models::Trained::kYes, offload.buffers) *
                                          (state_bytes(options) + weights_size));
    meter.take(MemoryUse::kMasterWeights,
               elements_in_windows(offload, models::Trained::kNo, OffloadOptions::kBuffersOfFrozen) * weights_size);
  }
  int64_t elements_in_windows(const OffloadOptions& offload, models::Trained trained, int buffers) const {
    int64_t windows = 0;
    int64_t largest = 0;
    for (size_t u = 0; u < placements_.size(); ++u) {
      if (!placements_[u].is_on_disk || units_[u].trained != trained) continue;
      windows += (placements_[u].count + offload.window_elements - 1) / offload.window_elements;
      largest = std::max(largest, std::min(offload.window_elements, placements_[u].count));
    }
    return std::min<int64_t>(windows, buffers) * largest;
  }
  // Weights are loaded a whole block at a time, and copied into its units if there are two. Copies of other ranks'
  // parameters go to disk through gather buffers.
  void load(MemoryMeter& meter) {
    for (size_t i = 0; i < model_.blocks().size(); ++i) {
      int64_t elements = model_.blocks()[i]->layout().numel();
      int64_t largest = 0;
      for (const size_t u : units_.of_block(i)) largest = std::max(largest, units_[u].layout.numel());
      if (units_.of_block(i).size() > 1) elements += largest;
      for (const size_t u : units_.of_block(i)) {
        const bool goes_through_buffer = is_hybrid_ && !placements_[u].keeps_parameters;
        if (goes_through_buffer) buffers_.take(bytes(u));
        meter.lend(MemoryUse::kGatherBuffers, elements * kFp32);
        if (goes_through_buffer) buffers_.put_back(bytes(u));
      }
    }
  }
  size_t unit_of(const models::TiedParameter& tied) const { return units_.place(tied.block, tied.parameter).unit; }
  int64_t bytes(size_t u) const { return units_[u].layout.numel() * element_size_; }
  void hold(size_t u) {
    if (users_[u]++ == 0 && !placements_[u].is_kept_whole) buffers_.take(bytes(u));
  }
  void drop(size_t u) {
    if (--users_[u] == 0 && !placements_[u].is_kept_whole) buffers_.put_back(bytes(u));
  }

  const models::Model& model_;
  const Units& units_;
  int64_t element_size_;
  bool is_hybrid_;
  int64_t shared_bytes_ = 0;
  std::vector<UnitPlacement> placements_;
  std::vector<int> users_;       // by unit: passes that hold its parameters
  std::vector<char> requested_;  // by block
  BufferPool buffers_;
};

// GradientReducer: where gradients of a micro-batch are collected.
class PlannedReducer {
 public:
  PlannedReducer(const MemoryPlanRequest& request, const Units& units, MemoryMeter& meter)
      : request_(request),
        units_(units),
        meter_(meter),
        is_tied_(request.model.blocks().size()),
        open_(request.model.blocks().size()),
        buffers_(meter, MemoryUse::kGradientBuffers) {
    for (const auto& block : request.model.blocks()) {
      for (const models::TiedParameter& tied : block->tied()) {
        if (tied.trained == models::Trained::kYes) is_tied_[tied.block] = 1;
      }
    }
  }

  void begin(size_t i, PlannedFold fold) {
    open(i, fold);
    for (const models::TiedParameter& tied : request_.model.blocks()[i]->tied()) {
      if (tied.trained == models::Trained::kYes) open(tied.block, fold);
    }
  }
  void reduce(size_t i, const PlannedParameters& parameters) {
    const Unit* unit = trained_unit(i);
    if (unit == nullptr) return;
    int64_t bytes = std::exchange(open_[i], std::nullopt).value_or(0);
    if (rounds() && bytes > 0) {
      const int64_t rounded = bytes / kFp32 * exchanged_size();
      buffers_.take(rounded);
      buffers_.put_back(std::exchange(bytes, rounded));
    }
    arrive();
    if (bytes == 0) return;
    if (request_.placement == RankPlacement::kProcesses && request_.num_ranks > 1) {
      meter_.lend(MemoryUse::kGradientBuffers,
                  exchanged_size() * request_.num_ranks *
                      std::min(comm::kStagingElements, parameters.unit(units_.of_block(i).front()).count));
    }
    on_the_way_ = bytes;
    if (request_.num_ranks == 1 && !request_.options.sharding.offload.parameters) arrive();
  }
  void finish() { arrive(); }
  void release_buffers() { buffers_.clear(); }

 private:
  int64_t exchanged_size() const { return element_size(request_.options.reduction); }
  bool rounds() const { return request_.options.reduction != Precision::kFp32; }
  // None: nothing in the block is trained. The trained unit of a block is its first.
  const Unit* trained_unit(size_t i) const {
    const Unit& first = units_[units_.of_block(i).front()];
    return first.is_frozen() ? nullptr : &first;
  }
  void open(size_t i, PlannedFold fold) {
    const Unit* unit = trained_unit(i);
    if (open_[i] || unit == nullptr) return;
    const bool is_exact = !rounds() && request_.options.accumulation == Precision::kFp32;
    const bool is_direct = request_.num_ranks == 1 && is_exact && (fold == PlannedFold::kOverwrite || is_tied_[i] == 0);
    open_[i] = is_direct ? 0 : unit->layout.numel() * kFp32;
    if (!is_direct) buffers_.take(*open_[i]);
  }
  void arrive() {
    if (on_the_way_ > 0) buffers_.put_back(std::exchange(on_the_way_, 0));
  }

  const MemoryPlanRequest& request_;
  const Units& units_;
  MemoryMeter& meter_;
  std::vector<char> is_tied_;
  std::vector<std::optional<int64_t>> open_;  // bytes of the buffer that is being filled; 0: straight into the sum
  int64_t on_the_way_ = 0;
  BufferPool buffers_;
};

// Stepper and Tape.
class PlannedRank {
 public:
  PlannedRank(const MemoryPlanRequest& request, int rank)
      : request_(request),
        units_(request.model),
        first_(request.model.first_trained_block()),
        parameters_(request, units_, rank, meter_),
        reducer_(request, units_, meter_) {
    micro_step(PlannedFold::kOverwrite);
    if (request.options.gradient_accumulation_steps > 1) micro_step(PlannedFold::kAdd);
    // Buffers that the first step leaves are there in the next.
    micro_step(PlannedFold::kOverwrite);
    evaluate();
    reducer_.release_buffers();
    parameters_.save(request, meter_);
  }

  const models::MemoryByUse& peak() const { return meter_.peak(); }
  int64_t shared_bytes() const { return parameters_.shared_bytes(); }
  int64_t disk_bytes() const { return parameters_.disk_bytes(request_.options); }

 private:
  struct Record {
    std::unique_ptr<PlannedGraph> graph;  // none: to be computed again
    PlannedTensor input;
    PlannedTensor output;
  };

  std::unique_ptr<PlannedGraph> graph(PlannedGradients gradients, PlannedFold fold) {
    // With several ranks a micro-batch's gradient is folded into the sum by the reduction.
    const bool overwrites = request_.num_ranks > 1 || fold == PlannedFold::kOverwrite;
    return std::make_unique<PlannedGraph>(
        meter_, PlannedGraph::Options{.batch = request_.batch,
                                      .element_size = element_size(request_.options),
                                      .gradients = gradients,
                                      .fold = overwrites ? PlannedFold::kOverwrite : PlannedFold::kAdd,
                                      .products = products()});
  }

  PlannedProducts products() const {
    return request_.options.precision() == Precision::kFp16 ? PlannedProducts::kWidened : PlannedProducts::kDirect;
  }

  PlannedTensor forward(size_t i, const PlannedTensor& input, PlannedFold fold) {
    const models::Block& block = *request_.model.blocks()[i];
    if (i < first_) return block.plan(*graph(PlannedGradients::kNone, fold), input);
    if (request_.options.gradient_checkpointing && i + 1 < request_.model.blocks().size()) {
      records_.push_back({.graph = nullptr, .input = input, .output = {}});
      return block.plan(*graph(PlannedGradients::kNone, fold), input);
    }
    auto recorded = graph(PlannedGradients::kTaken, fold);
    PlannedTensor output = block.plan(*recorded, beginning(i, input));
    records_.push_back({.graph = std::move(recorded), .input = input, .output = output});
    return output;
  }

  PlannedTensor backward(size_t i, const PlannedTensor& output_gradient, PlannedFold fold) {
    Record record = std::move(records_.back());
    records_.pop_back();
    if (!record.graph) {
      record.graph = graph(PlannedGradients::kTaken, fold);
      record.output = request_.model.blocks()[i]->plan(*record.graph, beginning(i, record.input));
    }
    return record.graph->backward(record.output, output_gradient);
  }

  // Nothing is trained before the first block: its input needs no gradient.
  PlannedTensor beginning(size_t i, const PlannedTensor& input) const {
    return i == first_ ? input : PlannedGraph::leaf(input);
  }

  void micro_step(PlannedFold fold) {
    const auto batch = meter_.lend(MemoryUse::kActivations, request_.batch.tokens * kBatchBytesPerToken);
    const size_t last = request_.model.blocks().size() - 1;
    PlannedTensor activations;
    for (size_t i = 0; i <= last; ++i) {
      parameters_.prefetch(i);
      parameters_.prefetch(i + 1);
      activations = forward(i, activations, fold);
      if (i != last) parameters_.release(i);
    }
    PlannedTensor gradient = graph(PlannedGradients::kNone, fold)->empty_like(activations);
    for (size_t i = last + 1; i-- > first_;) {
      parameters_.prefetch(i);
      if (i > first_) parameters_.prefetch(i - 1);
      reducer_.begin(i, fold);
      gradient = backward(i, gradient, fold);
      reducer_.reduce(i, parameters_);
      parameters_.release(i);
    }
    reducer_.finish();
  }

  // Evaluator and models::forward.
  void evaluate() {
    if (request_.evaluation.tokens == 0) return;
    const auto batch = meter_.lend(MemoryUse::kActivations, request_.evaluation.tokens * kBatchBytesPerToken);
    PlannedTensor activations;
    for (size_t i = 0; i < request_.model.blocks().size(); ++i) {
      parameters_.prefetch(i);
      parameters_.prefetch(i + 1);
      PlannedGraph graph(meter_, {.batch = request_.evaluation,
                                  .element_size = element_size(request_.options),
                                  .gradients = PlannedGradients::kNone,
                                  .products = products(),
                                  .dropout = models::PlannedDropout::kOff});
      activations = request_.model.blocks()[i]->plan(graph, activations);
      parameters_.release(i);
    }
  }

  const MemoryPlanRequest& request_;
  Units units_;
  size_t first_;  // block with anything to train
  MemoryMeter meter_;
  PlannedParameters parameters_;
  PlannedReducer reducer_;
  std::vector<Record> records_;
};

}  // namespace

MemoryPlan plan_memory(const MemoryPlanRequest& request) {
  // Ranks differ by the pieces of blocks that do not divide evenly; the first has the largest ones.
  const PlannedRank first(request, 0);
  MemoryPlan plan{.rank = first.peak(),
                  .shared_bytes = first.shared_bytes(),
                  .process_bytes = models::total(first.peak()),
                  .disk_bytes = first.disk_bytes()};
  if (request.placement == RankPlacement::kProcesses) return plan;
  for (int rank = 1; rank < request.num_ranks; ++rank) {
    plan.process_bytes += models::total(PlannedRank(request, rank).peak()) - plan.shared_bytes;
  }
  return plan;
}

std::vector<UnitPlacement> place_units(const MemoryPlanRequest& request, const Units& units, int rank) {
  return place_units({.units = units,
                      .sharding = request.options.sharding,
                      .rank = rank,
                      .num_ranks = request.num_ranks,
                      .is_one_process = request.placement == RankPlacement::kThreads || request.num_ranks == 1});
}

}  // namespace strake::training
