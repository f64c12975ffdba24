#include "strake/training/memory_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/core/error.h"
#include "strake/models/planned_graph.h"

namespace strake::training {
namespace {

using models::MemoryMeter;
using models::MemoryUse;
using models::PlannedFold;
using models::PlannedGradients;
using models::PlannedGraph;
using models::PlannedTensor;
using tensors::ShardLayout;

constexpr int64_t kFp32 = sizeof(float);
// Of the batch itself: ids, types and positions in 32 bits, rows in 64.
constexpr int64_t kBatchBytesPerToken = 20;

int64_t element_size(const TrainingOptions& options) { return options.bf16 ? 2 : kFp32; }

// Elements of a block that a rank has, as ShardedParameters::add_block decides.
struct BlockMemory {
  int64_t numel = 0;
  int64_t own = 0;   // what it updates
  int64_t kept = 0;  // parameters between passes
  bool is_kept_whole = true;
  bool is_shared = false;
  bool is_on_disk = false;  // optimizer state and master weights
  int users = 0;
};

// Elements of the blocks before this one, of which a share has its state on disk.
bool is_on_disk(const MemoryPlanRequest& request, const models::Block& block) {
  const OffloadOptions& offload = request.options.sharding.offload;
  int64_t before = 0;
  int64_t total = 0;
  for (const auto& other : request.model.blocks()) {
    if (other.get() == &block) before = total;
    total += other->layout().numel();
  }
  return offload.optimizer && static_cast<double>(before) < offload.ratio * static_cast<double>(total);
}

BlockMemory block_memory(const MemoryPlanRequest& request, const models::Block& block, int rank) {
  const ShardingOptions& sharding = request.options.sharding;
  const ShardingStage& stage = sharding.stage;
  const int64_t numel = block.layout().numel();
  const ShardLayout pieces(numel, request.num_ranks);
  const int group = stage.parameters == Kept::kGroupShard ? static_cast<int>(sharding.group_size) : request.num_ranks;
  const int replicas = request.num_ranks / group;
  const int first = rank % group * replicas;  // of the pieces that make up the rank's piece within its group
  const bool updates_all = stage.optimizer == Kept::kWhole;
  BlockMemory memory{.numel = numel, .own = updates_all ? numel : pieces.size(first + rank / group)};
  const bool can_share = request.placement == RankPlacement::kThreads || request.num_ranks == 1;
  memory.is_on_disk = is_on_disk(request, block);
  const bool parameters_on_disk =
      memory.is_on_disk && sharding.offload.parameters && numel >= sharding.persistence_threshold;
  memory.is_shared = sharding.share_between_threads && can_share && !updates_all && !parameters_on_disk;
  memory.is_kept_whole = memory.is_shared || (stage.gathered != Gathered::kForEachPass && !parameters_on_disk) ||
                         numel < sharding.persistence_threshold;
  memory.kept = memory.is_kept_whole ? numel : pieces.end(first + replicas - 1) - pieces.begin(first);
  if (parameters_on_disk) memory.kept = 0;
  return memory;
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
        requested_(request.model.blocks().size()),
        buffers_(meter, MemoryUse::kGatherBuffers) {
    const auto num_states =
        static_cast<int64_t>(optim::Optimizer(request.options.optimizer_settings()).states().size());
    int64_t largest = 0;
    for (const auto& block : model_.blocks()) {
      const BlockMemory memory = blocks_.emplace_back(block_memory(request, *block, rank));
      meter.take(MemoryUse::kParameters, memory.kept * element_size_);
      meter.take(MemoryUse::kGradients, memory.own * kFp32);
      const int64_t in_memory = memory.is_on_disk ? 0 : memory.own;
      if (request.options.bf16) meter.take(MemoryUse::kMasterWeights, in_memory * kFp32);
      meter.take(MemoryUse::kOptimizer, in_memory * kFp32 * num_states);
      if (memory.is_shared) shared_bytes_ += memory.kept * element_size_;
      largest = std::max(largest, memory.numel);
    }
    const OffloadOptions& offload = request.options.sharding.offload;
    if (offload.optimizer) {  // windows: masters, bf16 copies and states at most
      const int64_t window = std::min(offload.window_elements, largest);
      meter.take(MemoryUse::kOptimizer, offload.buffers * window * (kFp32 * (1 + num_states) + 2));
    }
    // Weights are loaded a whole block at a time.
    meter.lend(MemoryUse::kGatherBuffers, largest * kFp32);
  }

  int64_t shared_bytes() const { return shared_bytes_; }
  const BlockMemory& block(size_t i) const { return blocks_[i]; }

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
  void hold(size_t i) {
    if (blocks_[i].users++ == 0 && !blocks_[i].is_kept_whole) buffers_.take(blocks_[i].numel * element_size_);
  }
  void drop(size_t i) {
    if (--blocks_[i].users == 0 && !blocks_[i].is_kept_whole) buffers_.put_back(blocks_[i].numel * element_size_);
  }

  const models::Model& model_;
  int64_t element_size_;
  int64_t shared_bytes_ = 0;
  std::vector<BlockMemory> blocks_;
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
  void reduce(size_t i, const BlockMemory& block) {
    const int64_t bytes = std::exchange(open_[i], std::nullopt).value_or(0);
    arrive();
    if (bytes == 0) return;
    if (request_.placement == RankPlacement::kProcesses && request_.num_ranks > 1) {
      meter_.lend(MemoryUse::kGradientBuffers,
                  kFp32 * request_.num_ranks * std::min(comm::kStagingElements, block.own));
    }
    on_the_way_ = bytes;
    if (request_.num_ranks == 1) arrive();
  }
  void finish() { arrive(); }

 private:
  void open(size_t i, PlannedFold fold) {
    if (open_[i]) return;
    const bool is_direct = request_.num_ranks == 1 && (fold == PlannedFold::kOverwrite || is_tied_[i] == 0);
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
        meter_, PlannedGraph::Options{.batch = request_.batch,
                                      .element_size = element_size(request_.options),
                                      .gradients = gradients,
                                      .fold = overwrites ? PlannedFold::kOverwrite : PlannedFold::kAdd});
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
  const ShardingOptions& sharding = request.options.sharding;
  require(sharding.stage.parameters != Kept::kGroupShard ||
              (sharding.group_size > 0 && request.num_ranks % sharding.group_size == 0),
          ErrorKind::kUsage, "hybrid sharding: {} ranks cannot be split into groups of {}", request.num_ranks,
          sharding.group_size);
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
  for (const auto& block : request.model.blocks()) {
    const BlockMemory memory = block_memory(request, *block, 0);
    const int64_t gradient = leaves(memory.numel * kFp32, ranks);
    sum += gradient * options.gradient_accumulation_steps;
    if (stage.reduced == Reduced::kToAllRanks) sum += gradient;
    if (memory.is_shared || stage.optimizer == Kept::kWhole) continue;
    const int64_t parameters = memory.numel * element_size(options);
    if (memory.is_kept_whole) {
      sum += leaves(parameters, ranks);
      continue;
    }
    const bool is_hybrid = stage.parameters == Kept::kGroupShard;
    const int64_t group = is_hybrid ? options.sharding.group_size : ranks;
    sum += 2 * options.gradient_accumulation_steps * leaves(parameters, group);
    if (is_hybrid) sum += leaves(memory.kept * element_size(options), ranks / group);
  }
  return sum;
}

}  // namespace strake::training
