#include "strake/training/memory_plan.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "strake/models/planned_graph.h"
#include "strake/training/evaluator.h"
#include "strake/training/model_files.h"
#include "strake/training/planned_parameters.h"
#include "strake/training/planned_reducer.h"
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

// Of the batch itself: ids, types and positions in 32 bits, rows in 64.
constexpr int64_t kBatchBytesPerToken = 20;

// Taken from libtorch's allocator with the first products, by cuBLAS and cuBLASLt for compute capability 9.0; by others
// less.
constexpr int64_t kWorkspaceOfCublas = int64_t{65} << 20;

int64_t element_size(const TrainingOptions& options) { return element_size(options.precision()); }

PlannedProducts products(const MemoryPlanRequest& request) {
  if (request.is_on_gpu()) return PlannedProducts::kDirect;
  return request.options.precision() == Precision::kFp16 ? PlannedProducts::kWidened : PlannedProducts::kDirect;
}

int64_t bytes_of(const MemoryPlanRequest& request, const models::BatchShape& batch) {
  return (request.is_on_gpu() ? tensors::tokens_on_gpu(batch.tokens) : batch.tokens) * kBatchBytesPerToken;
}

// Evaluator and models::forward.
void evaluate_batch(const MemoryPlanRequest& request, PlannedParameters& parameters, MemoryMeter& meter) {
  const auto batch = meter.lend(MemoryUse::kActivations, bytes_of(request, request.evaluation));
  PlannedTensor activations;
  for (size_t i = 0; i < request.model.blocks().size(); ++i) {
    parameters.prefetch(i);
    parameters.prefetch(i + 1);
    PlannedGraph graph(meter, {.batch = request.evaluation,
                               .element_size = element_size(request.options),
                               .gradients = PlannedGradients::kNone,
                               .products = products(request),
                               .dropout = models::PlannedDropout::kOff,
                               .device = request.device});
    activations = request.model.blocks()[i]->plan(graph, activations);
    parameters.release(i);
  }
}

// Stepper and Tape.
class PlannedRank {
 public:
  PlannedRank(const MemoryPlanRequest& request, int rank, int64_t copied)
      : request_(request),
        units_(request.model),
        first_(request.model.first_trained_block()),
        parameters_(request, units_, rank, {meter_, request.is_on_gpu() ? host_ : meter_}),
        reducer_(request, units_, meter_) {
    if (request.is_on_gpu()) meter_.take(MemoryUse::kLibraries, kWorkspaceOfCublas);
    const auto copies = host().lend(MemoryUse::kCheckpointCopies, copied);
    micro_step(PlannedFold::kOverwrite);
    if (request.options.gradient_accumulation_steps > 1) micro_step(PlannedFold::kAdd);
    reducer_.finish();
    // Buffers that the first step leaves are there in the next.
    micro_step(PlannedFold::kOverwrite);
    reducer_.finish();
    evaluate();
    reducer_.release_buffers();
    parameters_.save(request);
  }

  const models::MemoryByUse& peak() const { return meter_.peak(); }
  const models::MemoryByUse& peak_of_host() const { return host_.peak(); }
  int64_t shared_bytes() const { return parameters_.shared_bytes(); }
  int64_t disk_bytes() const { return parameters_.disk_bytes(request_.options); }

 private:
  struct Record {
    std::unique_ptr<PlannedGraph> graph;  // none: to be computed again
    PlannedTensor input;
    PlannedTensor output;
  };

  std::unique_ptr<PlannedGraph> graph(size_t i, PlannedGradients gradients, PlannedFold fold) {
    // With several ranks a micro-batch's gradient is folded into the sum by the reduction. So is that of a tied weight,
    // whose last block writes it first.
    const bool is_tied = std::ranges::any_of(request_.model.blocks()[i]->tied(), [](const models::TiedParameter& tied) {
      return tied.trained == models::Trained::kYes;
    });
    const bool overwrites = request_.num_ranks > 1 || fold == PlannedFold::kOverwrite || is_tied;
    return std::make_unique<PlannedGraph>(
        meter_, PlannedGraph::Options{.batch = request_.batch,
                                      .element_size = element_size(request_.options),
                                      .gradients = gradients,
                                      .fold = overwrites ? PlannedFold::kOverwrite : PlannedFold::kAdd,
                                      .products = products(request_),
                                      .device = request_.device});
  }

  MemoryMeter& host() { return request_.is_on_gpu() ? host_ : meter_; }

  PlannedTensor forward(size_t i, const PlannedTensor& input, PlannedFold fold) {
    const models::Block& block = *request_.model.blocks()[i];
    if (i < first_) return block.plan(*graph(i, PlannedGradients::kNone, fold), input);
    if (request_.options.gradient_checkpointing && i + 1 < request_.model.blocks().size()) {
      records_.push_back({.graph = nullptr, .input = kept_input(input), .output = {}});
      return block.plan(*graph(i, PlannedGradients::kNone, fold), input);
    }
    auto recorded = graph(i, PlannedGradients::kTaken, fold);
    PlannedTensor output = block.plan(*recorded, beginning(i, input));
    records_.push_back({.graph = std::move(recorded), .input = input, .output = output});
    return output;
  }

  PlannedTensor backward(size_t i, const PlannedTensor& output_gradient, PlannedFold fold) {
    Record record = std::move(records_.back());
    records_.pop_back();
    if (!record.graph) {
      record.graph = graph(i, PlannedGradients::kTaken, fold);
      if (keeps_inputs_on_host() && record.input.defined()) record.input = record.graph->empty_like(record.input);
      record.output = request_.model.blocks()[i]->plan(*record.graph, beginning(i, record.input));
    }
    return record.graph->backward(record.output, output_gradient);
  }

  bool keeps_inputs_on_host() const { return request_.is_on_gpu() && request_.options.checkpoints_on_host; }

  // Of a block that is computed again.
  PlannedTensor kept_input(PlannedTensor input) {
    if (!keeps_inputs_on_host() || !input.defined()) return input;
    input.memory = host_.lend(MemoryUse::kActivations, input.rows * input.columns * input.element_size);
    return input;
  }

  // Nothing is trained before the first block: its input needs no gradient.
  PlannedTensor beginning(size_t i, const PlannedTensor& input) const {
    return i == first_ ? input : PlannedGraph::leaf(input);
  }

  void micro_step(PlannedFold fold) {
    const auto batch = meter_.lend(MemoryUse::kActivations, bytes_of(request_, request_.batch));
    const size_t last = request_.model.blocks().size() - 1;
    PlannedTensor activations;
    for (size_t i = 0; i <= last; ++i) {
      parameters_.prefetch(i);
      parameters_.prefetch(i + 1);
      activations = forward(i, activations, fold);
      if (i != last) parameters_.release(i);
    }
    PlannedTensor gradient = graph(last, PlannedGradients::kNone, fold)->empty_like(activations);
    for (size_t i = last + 1; i-- > first_;) {
      parameters_.prefetch(i);
      if (i > first_) parameters_.prefetch(i - 1);
      reducer_.begin(i, fold);
      gradient = backward(i, gradient, fold);
      reducer_.reduce(i, parameters_);
      parameters_.release(i);
    }
  }

  void evaluate() {
    if (request_.evaluation.tokens == 0) return;
    const int64_t bytes_of_row = request_.outputs_of_row * static_cast<int64_t>(sizeof(float));
    const auto outputs = host().lend(MemoryUse::kActivations, request_.evaluation_rows * bytes_of_row);
    evaluate_batch(request_, parameters_, meter_);
    const auto losses =
        host().lend(MemoryUse::kActivations, std::min(request_.evaluation_rows, kRowsOfLoss) * bytes_of_row);
  }

  const MemoryPlanRequest& request_;
  Units units_;
  size_t first_;  // block with anything to train
  MemoryMeter meter_;
  MemoryMeter host_;  // of ranks on GPUs
  PlannedParameters parameters_;
  PlannedReducer reducer_;
  std::vector<Record> records_;
};

// Of each rank's part of a checkpoint, in memory while it is written.
std::vector<int64_t> copied_bytes(const MemoryPlanRequest& request) {
  std::vector<int64_t> bytes(static_cast<size_t>(request.num_ranks));
  if (!request.options.keeps_copies()) return bytes;
  const Units units(request.model);
  const std::vector<UnitPlacement> placements = place_units(request, units, 0);
  for (int rank = 0; rank < request.num_ranks; ++rank) {
    int64_t trained = 0;
    for (const UnitPlacement& unit : placements) trained += unit.is_frozen ? 0 : unit.layout.size(rank);
    bytes[static_cast<size_t>(rank)] =
        elements_of_part(request.model, rank, request.num_ranks) * static_cast<int64_t>(sizeof(float)) +
        trained * state_bytes(request.options);
  }
  return bytes;
}

}  // namespace

MemoryPlan plan_memory(const MemoryPlanRequest& request) {
  // Ranks differ by the pieces of blocks that do not divide evenly, of which the first has the largest ones, and by the
  // blocks of which they write the weights: that one or the one with the largest copies takes most.
  const std::vector<int64_t> copied = copied_bytes(request);
  const auto copying = static_cast<int>(std::ranges::max_element(copied) - copied.begin());
  const auto of_host = [&](const PlannedRank& rank) {
    return models::total(request.is_on_gpu() ? rank.peak_of_host() : rank.peak());
  };
  const auto larger = [](const models::MemoryByUse& a, const models::MemoryByUse& b) {
    return models::total(a) < models::total(b) ? b : a;
  };
  const PlannedRank first(request, 0, copied[0]);
  MemoryPlan plan{.rank = first.peak(),
                  .host = first.peak_of_host(),
                  .shared_bytes = first.shared_bytes(),
                  .process_bytes = of_host(first),
                  .disk_bytes = first.disk_bytes(),
                  .copied_bytes = copied};
  const bool is_process = request.placement == RankPlacement::kProcesses;
  for (int rank = 1; rank < request.num_ranks; ++rank) {
    if (is_process && rank != copying) continue;
    const PlannedRank other(request, rank, copied[static_cast<size_t>(rank)]);
    plan.rank = larger(plan.rank, other.peak());
    plan.host = larger(plan.host, other.peak_of_host());
    plan.process_bytes = is_process ? std::max(plan.process_bytes, of_host(other))
                                    : plan.process_bytes + of_host(other) - plan.shared_bytes;
  }
  return plan;
}

std::vector<UnitPlacement> place_units(const MemoryPlanRequest& request, const Units& units, int rank) {
  return place_units({.units = units,
                      .sharding = request.options.sharding,
                      .rank = rank,
                      .num_ranks = request.num_ranks,
                      .shares_memory = !request.is_on_gpu() && (request.placement == RankPlacement::kThreads ||
                                                                request.num_ranks == 1 || request.shares_memory)});
}

EvaluationMemory plan_evaluation_memory(const MemoryPlanRequest& request) {
  const Units units(request.model);
  MemoryMeter weights;
  MemoryMeter activations;
  PlannedParameters parameters(request, units, 0, {weights, weights});
  evaluate_batch(request, parameters, activations);
  return {.weights = models::total(weights.now()), .activations = models::total(activations.peak())};
}

}  // namespace strake::training
