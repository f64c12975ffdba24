#include "strake/training/machine_speed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "strake/comm/thread_comm.h"
#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/scratch_file.h"
#include "strake/core/threads.h"
#include "strake/models/weights.h"
#include "strake/tensors/compute_threads.h"

namespace strake::training {
namespace {

using models::PlannedGraph;
using models::PlannedTensor;

constexpr int64_t kLongestSequence = 512;
constexpr int64_t kMostTokens = 2048;
constexpr int64_t kBuffersOfCrew = int64_t{256} << 20;  // bytes of one buffer of each rank

// body(comm) on all ranks that measure; the result is that of the first one, or of this process.
template <typename Body>
auto at_work(const Crew& crew, int threads, const Body& body) {
  if (crew.started) {
    tensors::set_compute_threads(threads);
    return body(crew.started->comm);
  }
  std::invoke_result_t<const Body&, comm::Comm&> first{};
  comm::run_ranks(crew.at_once, threads, [&](comm::Comm& comm) {
    auto own = body(comm);
    if (comm.rank() == 0) first = std::move(own);
  });
  return first;
}

// The slowest rank's seconds, on all ranks.
double seconds_of_all(comm::Comm& comm, const std::function<void()>& work) {
  comm.barrier();
  const auto start = Clock::now();
  work();
  return std::ranges::max(comm::all_gather_values(comm, {seconds_since(start)}));
}

double least(comm::Comm& comm, double value) { return std::ranges::min(comm::all_gather_values(comm, {value})); }

// Of what a rank reached while as many as measure were at work.
double share_of_cores(const Crew& crew) { return crew.share(std::max(crew.at_once, crew.measuring())); }

int64_t elements_of_buffer(comm::Comm& comm, const Crew& crew, int64_t most) {
  const int64_t room = kBuffersOfCrew / crew.measuring() / static_cast<int64_t>(sizeof(float));
  return std::min(most, static_cast<int64_t>(least(comm, static_cast<double>(room))));
}

struct Runs {  // seconds
  double fastest = 0;
  double slowest = 0;
};

// A few runs after one that is not counted, which finds memory and compiles kernels. The fastest one tells: whatever
// else goes on makes runs slower only. All ranks call it, and get the same. Slow work is not repeated as often.
Runs measure(comm::Comm& comm, const std::function<void()>& work) {
  constexpr int kFewest = 2;
  constexpr int kMost = 5;
  constexpr double kEnough = 0.25;  // seconds
  work();
  double sum = seconds_of_all(comm, work);
  Runs timed{.fastest = sum, .slowest = sum};
  for (int runs = 1; runs < kFewest || (runs < kMost && sum < kEnough); ++runs) {
    const double seconds = seconds_of_all(comm, work);
    timed = {.fastest = std::min(timed.fastest, seconds), .slowest = std::max(timed.slowest, seconds)};
    sum += seconds;
  }
  return timed;
}

// Takes a block's gradients as training with several ranks does: into a flat fp32 buffer.
class FlatSink final : public models::GradientSink {
 public:
  explicit FlatSink(const tensors::FlatLayout& layout) : layout_(layout), flat_(at::zeros({layout.numel()})) {}
  void accept(size_t parameter, const at::Tensor& gradient) override { view(parameter).copy_(gradient); }
  Target target(size_t parameter) override { return {.gradient = view(parameter)}; }
  at::Tensor add_target(size_t parameter, const Rows& /*rows*/) override { return view(parameter); }

 private:
  at::Tensor view(size_t parameter) const { return tensors::FlatLayout::view(flat_, layout_.entries()[parameter]); }

  const tensors::FlatLayout& layout_;
  at::Tensor flat_;
};

// A layer that gives all its tokens: the last one of an encoder may compute the first ones only.
size_t middle_layer(const models::Model& model) { return (model.blocks().size() - 1) / 2; }

int64_t width_of_layer(const models::Model& model) {
  models::MemoryMeter meter;
  PlannedGraph graph(meter, {.batch = {.tokens = 1, .sequences = 1, .squared_lengths = 1},
                             .gradients = models::PlannedGradients::kNone});
  PlannedTensor activations;
  for (size_t i = 0; i < middle_layer(model); ++i) activations = model.blocks()[i]->plan(graph, activations);
  return activations.columns;
}

struct PlannedPass {
  double flops = 0;
  int64_t bytes = 0;  // of all tensors of a rank
};

PlannedPass plan_pass(const LayerMeasurement& what, const models::BatchShape& batch, int64_t width) {
  models::MemoryMeter meter;
  const models::Block& block = *what.model.blocks()[middle_layer(what.model)];
  const Precision precision = what.options.precision();
  PlannedGraph graph(meter, {.batch = batch,
                             .element_size = element_size(precision),
                             .products = precision == Precision::kFp16 ? models::PlannedProducts::kWidened
                                                                       : models::PlannedProducts::kDirect});
  const PlannedTensor input = graph.empty(batch.tokens, width);
  const PlannedTensor output = block.plan(graph, PlannedGraph::leaf(input));
  graph.backward(output, graph.empty_like(output));
  constexpr int64_t kFp32 = sizeof(float);
  const int64_t weights = block.layout().numel() * (2 * kFp32 + element_size(precision));
  return {.flops = graph.flops(), .bytes = weights + models::total(meter.peak())};
}

models::BatchShape shape_of(int64_t sequences, int64_t length) {
  const int64_t tokens = sequences * length;
  return {.tokens = tokens, .sequences = sequences, .squared_lengths = static_cast<double>(tokens * length)};
}

tensors::PackedBatch batch_of(int64_t sequences, int64_t length) {
  const int64_t tokens = sequences * length;
  tensors::PackedBatch batch{.input_ids = at::zeros({tokens}, at::kInt),
                             .token_type_ids = at::zeros({tokens}, at::kInt),
                             .positions = at::zeros({tokens}, at::kInt),
                             .token_rows = at::zeros({tokens}, at::kLong),
                             .offsets = at::zeros({sequences + 1}, at::kInt),
                             .labels = {}};
  for (int64_t i = 0; i < tokens; ++i) {
    batch.positions.mutable_data_ptr<int32_t>()[i] = static_cast<int32_t>(i % length);
    batch.token_rows.mutable_data_ptr<int64_t>()[i] = i / length;
  }
  for (int64_t s = 0; s <= sequences; ++s) {
    batch.offsets.mutable_data_ptr<int32_t>()[s] = static_cast<int32_t>(s * length);
  }
  return batch;
}

// A rank's copy of the layer.
class Layer {
 public:
  Layer(const LayerMeasurement& what, int64_t width)
      : block_(*what.model.blocks()[middle_layer(what.model)]),
        type_(scalar_type(what.options.precision())),
        width_(width),
        sink_(block_.layout()) {
    at::Tensor flat = at::zeros({block_.layout().numel()});
    models::initialize_block(block_, what.model.initializer_range(), what.options.seed, flat);
    parameters_ = block_.view(flat.to(type_), &sink_);
    for (models::Parameter& parameter : parameters_) {
      if (block_.parameters()[parameter.index].trained == models::Trained::kNo) parameter.sink = nullptr;
    }
  }

  Runs measure_pass(comm::Comm& comm, int64_t sequences, int64_t length) const {
    const tensors::PackedBatch batch = batch_of(sequences, length);
    const models::StepContext context{.batch = batch, .dropout_key = philox_key(0, 1)};
    const at::Tensor hidden = at::randn({batch.num_tokens(), width_}).to(type_);
    return measure(comm, [&] {
      const at::Tensor input = hidden.detach().requires_grad_();
      const at::Tensor output = block_.forward(parameters_, input, context);
      output.backward(at::full_like(output, 1e-3));
    });
  }

 private:
  const models::Block& block_;
  at::ScalarType type_;
  int64_t width_;
  FlatSink sink_;
  models::Parameters parameters_;
};

}  // namespace

Crew Crew::of(int ranks_on_machine, const std::optional<StartedRanks>& started) {
  const int threads = started ? started->threads : threads_per_rank(ranks_on_machine);
  return {.ranks = ranks_on_machine,
          .threads = threads,
          .at_once = std::clamp(available_cores() / threads, 1, ranks_on_machine),
          .started = started};
}

// Batches grow until one is as large as the run's, or a pass is long enough to tell.
std::optional<ArithmeticSpeed> measure_layer(const LayerMeasurement& what, const Crew& crew) {
  constexpr double kLongPass = 0.1;  // seconds
  constexpr int64_t kFirstTokens = 128;
  const int64_t width = width_of_layer(what.model);
  const int64_t length = std::clamp<int64_t>(what.batch.tokens / what.batch.sequences, 1, kLongestSequence);
  const int64_t most = std::clamp<int64_t>(kMostTokens / length, 1, what.batch.sequences);
  return at_work(crew, crew.threads, [&](comm::Comm& comm) -> std::optional<ArithmeticSpeed> {
    const double most_of_rank = least(comm, static_cast<double>(what.most_bytes) / crew.measuring());
    const auto fits = [&](int64_t sequences) {
      return static_cast<double>(plan_pass(what, shape_of(sequences, length), width).bytes) <= most_of_rank;
    };
    if (!fits(1)) return std::nullopt;
    const Layer layer(what, width);
    int64_t sequences = std::clamp<int64_t>(kFirstTokens / length, 1, most);
    if (!fits(sequences)) sequences = 1;
    while (true) {
      const Runs runs = layer.measure_pass(comm, sequences, length);
      const int64_t next = std::min(2 * sequences, most);
      if (next == sequences || runs.fastest > kLongPass || !fits(next)) {
        const models::BatchShape shape = shape_of(sequences, length);
        const double flops = plan_pass(what, shape, width).flops / runs.fastest;
        return ArithmeticSpeed{.flops = least(comm, flops * share_of_cores(crew)),
                               .tokens = shape.tokens,
                               .spread = runs.slowest / runs.fastest};
      }
      sequences = next;
    }
  });
}

double measure_sums_between_ranks(const Crew& crew) {
  constexpr int64_t kMostElements = int64_t{8} << 20;
  Crew senders = crew;
  senders.at_once = std::max(2, crew.at_once);
  return at_work(senders, 1, [&](comm::Comm& comm) {
    const int64_t elements = elements_of_buffer(comm, senders, kMostElements);
    const tensors::ShardLayout layout(elements, comm.size());
    const at::Tensor gradient = at::ones({elements});
    at::Tensor sum = at::zeros({layout.size(comm.rank())});
    const Runs runs =
        measure(comm, [&] { comm.reduce_scatter(gradient, comm.size(), layout, sum, comm::Fold::kOverwrite); });
    const double sent = static_cast<double>(elements) * sizeof(float) * (comm.size() - 1) / comm.size();
    return least(comm, sent / runs.fastest * std::min(1.0, crew.share(senders.measuring())));
  });
}

double measure_memory(const Crew& crew) {
  constexpr int64_t kMostElements = int64_t{16} << 20;  // of a vector: more than caches hold
  return at_work(crew, crew.threads, [&](comm::Comm& comm) {
    const int64_t elements = elements_of_buffer(comm, crew, kMostElements);
    const at::Tensor addend = at::ones({elements});
    at::Tensor sum = at::ones({elements});
    const Runs runs = measure(comm, [&] { sum.add_(addend); });
    constexpr double kReadAndWritten = 3 * sizeof(float);
    return least(comm, static_cast<double>(elements) * kReadAndWritten / runs.fastest * share_of_cores(crew));
  });
}

double measure_disk(const std::filesystem::path& folder) {
  constexpr size_t kWindow = size_t{16} << 20;
  constexpr uint64_t kWindows = 16;
  constexpr double kEnough = 1.0;  // seconds
  ScratchFile file(folder, kWindow * kWindows, {});
  const AlignedBytes memory = allocate_aligned(2 * kWindow);
  const std::span<std::byte> first(memory.get(), kWindow);
  const std::span<std::byte> second(memory.get() + kWindow, kWindow);
  std::ranges::fill(first, std::byte{1});
  // What was never written is not read from the disk.
  for (uint64_t window = 0; window < kWindows; ++window) file.wait(file.write(window * kWindow, first));
  const auto start = Clock::now();
  uint64_t bytes = 0;
  for (uint64_t window = 1; window < kWindows && seconds_since(start) < kEnough; ++window) {
    const uint64_t read = file.read(window * kWindow, second);
    file.wait(file.write((window - 1) * kWindow, first));
    file.wait(read);
    bytes += 2 * kWindow;
  }
  return static_cast<double>(bytes) / seconds_since(start);
}

}  // namespace strake::training
