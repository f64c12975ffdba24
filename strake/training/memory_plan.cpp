#include "strake/training/memory_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/models/planned_graph.h"
#include "strake/training/placement.h"

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

std::vector<BlockPlacement> placements_of(const MemoryPlanRequest& request, int rank) {
  return place_blocks({.model = request.model,
                       .sharding = request.options.sharding,
                       .rank = rank,
                       .num_ranks = request.num_ranks,
                       .is_one_process = request.placement == RankPlacement::kThreads || request.num_ranks == 1});
}

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

 private:
  MemoryMeter& meter_;
  MemoryUse use_;
  std::map<int64_t, int> free_;
};

// ShardedParameters: what is kept, and what is gathered for passes.
class PlannedParameters {
 public:
  PlannedParameters(const MemoryPlanRequest& request, int rank, MemoryMeter& meter)
      : model_(request.model),
        element_size_(element_size(request.options)),
        blocks_(placements_of(request, rank)),
        users_(blocks_.size()),
        requested_(blocks_.size()),
        buffers_(meter, MemoryUse::kGatherBuffers) {
    const auto num_states =
        static_cast<int64_t>(optim::Optimizer(request.options.optimizer_settings()).states().size());
    int64_t largest = 0;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const BlockPlacement& block = blocks_[i];
      meter.take(MemoryUse::kParameters, block.kept_count * element_size_);
      meter.take(MemoryUse::kGradients, block.count * element_size(request.options.accumulation));
      const int64_t in_memory = block.is_on_disk ? 0 : block.count;
      if (element_size_ < kFp32) meter.take(MemoryUse::kMasterWeights, in_memory * kFp32);
      meter.take(MemoryUse::kOptimizer, in_memory * kFp32 * num_states);
      if (block.is_shared) shared_bytes_ += block.kept_count * element_size_;
      largest = std::max(largest, numel(i));
    }
    const OffloadOptions& offload = request.options.sharding.offload;
    if (offload.optimizer) {  // windows: masters, rounded copies and states at most
      const int64_t window = std::min(offload.window_elements, largest);
      meter.take(MemoryUse::kOptimizer, offload.buffers * window * (kFp32 * (1 + num_states) + 2));
    }
    // Weights are loaded a whole block at a time.
    meter.lend(MemoryUse::kGatherBuffers, largest * kFp32);
  }

  int64_t shared_bytes() const { return shared_bytes_; }
  const BlockPlacement& block(size_t i) const { return blocks_[i]; }

  void prefetch(size_t i) {
    if (i >= blocks_.size() || requested_[i] != 0) return;
    requested_[i] = 1;
    hold(i);
    for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) hold(tied.block);
  }
  void release(size_t i) {
    requested_[i] = 0;
    drop(i);
    for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) drop(tied.block);
  }

 private:
  int64_t numel(size_t i) const { return model_.blocks()[i]->layout().numel(); }
  void hold(size_t i) {
    if (users_[i]++ == 0 && !blocks_[i].is_kept_whole) buffers_.take(numel(i) * element_size_);
  }
  void drop(size_t i) {
    if (--users_[i] == 0 && !blocks_[i].is_kept_whole) buffers_.put_back(numel(i) * element_size_);
  }

  const models::Model& model_;
  int64_t element_size_;
  int64_t shared_bytes_ = 0;
  std::vector<BlockPlacement> blocks_;
  std::vector<int> users_;  // by block: passes that hold its parameters
  std::vector<char> requested_;
  BufferPool buffers_;
};

// GradientReducer: where gradients of a micro-batch are collected.
class PlannedReducer {
 public:
  PlannedReducer(const MemoryPlanRequest& request, MemoryMeter& meter)
      : request_(request),
        meter_(meter),
        is_tied_(request.model.blocks().size()),
        open_(request.model.blocks().size()),
        buffers_(meter, MemoryUse::kGradientBuffers) {
    for (const auto& block : request.model.blocks()) {
      for (const models::TiedParameter& tied : block->tied()) is_tied_[tied.block] = 1;
    }
  }

  void begin(size_t i, PlannedFold fold) {
    open(i, fold);
    for (const models::TiedParameter& tied : request_.model.blocks()[i]->tied()) open(tied.block, fold);
  }
  void reduce(size_t i, const BlockPlacement& block) {
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
                  exchanged_size() * request_.num_ranks * std::min(comm::kStagingElements, block.count));
    }
    on_the_way_ = bytes;
    if (request_.num_ranks == 1) arrive();
  }
  void finish() { arrive(); }

 private:
  int64_t exchanged_size() const { return element_size(request_.options.reduction); }
  bool rounds() const { return request_.options.reduction != Precision::kFp32; }
  void open(size_t i, PlannedFold fold) {
    if (open_[i]) return;
    const bool is_exact = !rounds() && request_.options.accumulation == Precision::kFp32;
    const bool is_direct = request_.num_ranks == 1 && is_exact && (fold == PlannedFold::kOverwrite || is_tied_[i] == 0);
    open_[i] = is_direct ? 0 : request_.model.blocks()[i]->layout().numel() * kFp32;
    if (!is_direct) buffers_.take(*open_[i]);
  }
  void arrive() {
    if (on_the_way_ > 0) buffers_.put_back(std::exchange(on_the_way_, 0));
  }

  const MemoryPlanRequest& request_;
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
      : request_(request), parameters_(request, rank, meter_), reducer_(request, meter_) {
    micro_step(PlannedFold::kOverwrite);
    if (request.options.gradient_accumulation_steps > 1) micro_step(PlannedFold::kAdd);
    // Buffers that the first step leaves are there in the next.
    micro_step(PlannedFold::kOverwrite);
  }

  const models::MemoryByUse& peak() const { return meter_.peak(); }
  int64_t shared_bytes() const { return parameters_.shared_bytes(); }

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
        meter_,
        PlannedGraph::Options{.batch = request_.batch,
                              .element_size = element_size(request_.options),
                              .gradients = gradients,
                              .fold = overwrites ? PlannedFold::kOverwrite : PlannedFold::kAdd,
                              .products = request_.options.precision() == Precision::kFp16 ? PlannedProducts::kWidened
                                                                                           : PlannedProducts::kDirect});
  }

  PlannedTensor forward(size_t i, const PlannedTensor& input, PlannedFold fold) {
    const models::Block& block = *request_.model.blocks()[i];
    if (request_.options.gradient_checkpointing && i + 1 < request_.model.blocks().size()) {
      records_.push_back({.graph = nullptr, .input = input, .output = {}});
      return block.plan(*graph(PlannedGradients::kNone, fold), input);
    }
    auto recorded = graph(PlannedGradients::kTaken, fold);
    PlannedTensor output = block.plan(*recorded, PlannedGraph::leaf(input));
    records_.push_back({.graph = std::move(recorded), .input = input, .output = output});
    return output;
  }

  PlannedTensor backward(size_t i, const PlannedTensor& output_gradient, PlannedFold fold) {
    Record record = std::move(records_.back());
    records_.pop_back();
    if (!record.graph) {
      record.graph = graph(PlannedGradients::kTaken, fold);
      record.output = request_.model.blocks()[i]->plan(*record.graph, PlannedGraph::leaf(record.input));
    }
    return record.graph->backward(record.output, output_gradient);
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
    for (size_t i = last + 1; i-- > 0;) {
      parameters_.prefetch(i);
      if (i > 0) parameters_.prefetch(i - 1);
      reducer_.begin(i, fold);
      gradient = backward(i, gradient, fold);
      reducer_.reduce(i, parameters_.block(i));
      parameters_.release(i);
    }
    reducer_.finish();
  }

  const MemoryPlanRequest& request_;
  MemoryMeter meter_;
  PlannedParameters parameters_;
  PlannedReducer reducer_;
  std::vector<Record> records_;
};

}  // namespace

MemoryPlan plan_memory(const MemoryPlanRequest& request) {
  // Ranks differ by the pieces of blocks that do not divide evenly; the first has the largest ones.
  const PlannedRank first(request, 0);
  MemoryPlan plan{
      .rank = first.peak(), .shared_bytes = first.shared_bytes(), .process_bytes = models::total(first.peak())};
  if (request.placement == RankPlacement::kProcesses) return plan;
  for (int rank = 1; rank < request.num_ranks; ++rank) {
    plan.process_bytes += models::total(PlannedRank(request, rank).peak()) - plan.shared_bytes;
  }
  return plan;
}

int64_t communicated_bytes(const MemoryPlanRequest& request) {
  const TrainingOptions& options = request.options;
  const ShardingStage& stage = options.sharding.stage;
  const int64_t ranks = request.num_ranks;
  const auto leaves = [](int64_t bytes, int64_t group) { return bytes / group * (group - 1); };
  int64_t sum = 0;
  const std::vector<BlockPlacement> placements = placements_of(request, 0);
  for (size_t i = 0; i < placements.size(); ++i) {
    const BlockPlacement& block = placements[i];
    const int64_t numel = request.model.blocks()[i]->layout().numel();
    sum += leaves(numel * element_size(options.reduction), ranks) * options.gradient_accumulation_steps;
    if (stage.reduced == Reduced::kToAllRanks) sum += leaves(numel * element_size(options.accumulation), ranks);
    if (block.is_shared || stage.optimizer == Kept::kWhole) continue;
    const int64_t parameters = numel * element_size(options);
    if (block.is_kept_whole) {
      sum += leaves(parameters, ranks);
      continue;
    }
    const bool is_hybrid = stage.parameters == Kept::kGroupShard;
    const int64_t group = is_hybrid ? options.sharding.group_size : ranks;
    sum += 2 * options.gradient_accumulation_steps * leaves(parameters, group);
    if (is_hybrid) sum += leaves(block.kept_count * element_size(options), ranks / group);
  }
  return sum;
}

}  // namespace strake::training
