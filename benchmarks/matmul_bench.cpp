// The matrix products of RoBERTa-base's linear layers at 864 tokens (32 reviews), through each library that a linear
// layer can take. GFLOPS, and the share of what the processor does in a loop of multiply-adds on registers. Processors
// lower their clock under some instructions, AMX's by a fifth and more, and with what their neighbours do: the loop
// runs on all threads behind each product ("percent", the median), and also alone before ("percent_alone", by the best
// of one thread times the number of threads). Threads that take rows of "packed" do not wait for each other in an
// engine: its "percent" is of their own rates, as that of the loop is. STRAKE_NUM_THREADS sets the threads (1 if
// unset). Arguments after Google Benchmark's own: none. Operands are packed in each call, as in training, but for
// "packed", which is as inference computes it: the weight is packed once and multiplied in measured blocks, each thread
// takes its share of the rows, which lie apart, and ffn1 is activated. In int8, rows are quantized in each call; its
// peak is that of integers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/memory.h"
#include "strake/core/threads.h"
#include "strake/inference/cache_tuning.h"
#include "strake/kernels/int8_matmul.h"
#include "strake/kernels/matmul.h"
#include "strake/kernels/scratch.h"
#include "strake/models/layers/linear_products.h"
#include "strake/models/layers/node.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/tracked_memory.h"

#include "benchmarks/register_peak.h"

namespace strake::models::layers {
namespace {

constexpr int64_t kTokens = 864;
constexpr double kLoopSeconds = 2e-4;  // the clock of the product has not changed much by then

struct Layer {
  const char* name;
  int64_t inputs;
  int64_t outputs;
};
constexpr Layer kLayers[] = {{"qkv", 768, 2304}, {"out", 768, 768}, {"ffn1", 768, 3072}, {"ffn2", 3072, 768}};

benchmarks::RegisterLoop register_loop(c10::ScalarType dtype) {
  if (dtype == at::kChar) return benchmarks::int8_register_loop();
  return dtype == at::kFloat ? benchmarks::fp32_register_loop() : benchmarks::bf16_register_loop();
}

double flops_of(const Layer& layer, int64_t rows) {
  return 2.0 * static_cast<double>(rows * layer.inputs * layer.outputs);
}

// product() computes all tokens once and returns the operations a second of all threads, each by its own clock.
template <typename Product>
void measure_rates(benchmark::State& state, const Layer& layer, c10::ScalarType dtype, const Product& product) {
  const benchmarks::RegisterLoop loop = register_loop(dtype);
  const double alone = benchmarks::best_rate(loop);
  const auto rounds = static_cast<int>(kLoopSeconds * alone / loop.operations);
  const double flops = flops_of(layer, kTokens);
  std::vector<double> percents;
  product();
  for (auto _ : state) {
    const auto start = Clock::now();
    const double rate = product();
    state.SetIterationTime(seconds_since(start));
    percents.push_back(100 * rate / benchmarks::rate_of_all_threads(loop, rounds));
  }
  const auto middle = percents.begin() + static_cast<std::ptrdiff_t>(percents.size() / 2);
  std::ranges::nth_element(percents, middle);
  state.counters["percent"] = *middle;
  state.counters["percent_alone"] =
      benchmark::Counter(100.0 * flops / (alone * num_threads()), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOPS"] = benchmark::Counter(flops / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

template <typename Product>
void measure(benchmark::State& state, const Layer& layer, c10::ScalarType dtype, const Product& product) {
  measure_rates(state, layer, dtype, [&] {
    const auto start = Clock::now();
    product();
    return flops_of(layer, kTokens) / seconds_since(start);
  });
}

struct Tensors {
  Tensors(const Layer& layer, c10::ScalarType dtype)
      : x(at::randn({kTokens, layer.inputs}).to(dtype)),
        weight(at::randn({layer.outputs, layer.inputs}).to(dtype)),
        bias(at::randn({layer.outputs}).to(dtype)),
        dy(at::randn({kTokens, layer.outputs}).to(dtype)) {}
  at::Tensor x, weight, bias, dy;
};

// As in an encoder.
std::optional<kernels::Activation> activation_of(const Layer& layer) {
  if (std::string_view(layer.name) != "ffn1") return std::nullopt;
  return kernels::Activation::kGelu;
}

// Threads take rows, as those of an engine take texts: product(first row, rows, scratch) each, with room for
// scratch_floats(rows).
template <typename ScratchFloats, typename Product>
void measure_in_rows(benchmark::State& state, const Layer& layer, c10::ScalarType dtype,
                     const ScratchFloats& scratch_floats, const Product& product) {
  const int64_t rows = (kTokens + num_threads() - 1) / num_threads();
  std::vector<kernels::AlignedFloats> scratch;
  for (int i = 0; i < num_threads(); ++i) scratch.emplace_back(scratch_floats(rows));
  std::vector<double> rates(static_cast<size_t>(num_threads()));
  measure_rates(state, layer, dtype, [&] {
    parallel_for(num_threads(), 1, [&](int64_t thread, int64_t) {
      const int64_t begin = std::min(kTokens, thread * rows);
      const int64_t count = std::min(kTokens, begin + rows) - begin;
      const auto start = Clock::now();
      product(begin, count, scratch[static_cast<size_t>(thread)].data());
      rates[static_cast<size_t>(thread)] = flops_of(layer, count) / seconds_since(start);
    });
    return std::accumulate(rates.begin(), rates.end(), 0.0);
  });
}

template <typename T>
void packed_forward(benchmark::State& state, const Layer& layer, c10::ScalarType dtype) {
  const Tensors t(layer, dtype);
  const at::Tensor x = at::randn({kTokens, kernels::row_stride<T>(layer.inputs)}).to(dtype);
  const at::Tensor y = at::empty({kTokens, kernels::row_stride<T>(layer.outputs)}, dtype);
  const kernels::PackedMatrix<T> packed({const_storage<T>(t.weight), layer.inputs, kernels::Order::kColumns},
                                        layer.inputs, layer.outputs);
  const kernels::PackedMatrix<T> weight = packed.in_blocks(inference::measure_blocks(packed));
  const auto scratch_floats = [&](int64_t rows) { return kernels::matmul_scratch<T, T>(rows, weight); };
  measure_in_rows(state, layer, dtype, scratch_floats, [&](int64_t begin, int64_t rows, float* scratch) {
    const kernels::MatmulResult<T, T> result{.c = storage<T>(y) + begin * y.size(1),
                                             .stride = y.size(1),
                                             .bias = const_storage<T>(t.bias),
                                             .activation = activation_of(layer)};
    kernels::matmul_on_thread<T, T>({.rows = rows,
                                     .columns = layer.outputs,
                                     .depth = layer.inputs,
                                     .a = {const_storage<T>(x) + begin * x.size(1), x.size(1)},
                                     .b = {},
                                     .result = result},
                                    weight, scratch);
  });
}

void quantized_forward(benchmark::State& state, const Layer& layer) {
  using kernels::BFloat16;
  const Tensors t(layer, at::kBFloat16);
  const at::Tensor x = at::randn({kTokens, kernels::row_stride<BFloat16>(layer.inputs)}).to(at::kBFloat16);
  const at::Tensor y = at::empty({kTokens, kernels::row_stride<BFloat16>(layer.outputs)}, at::kBFloat16);
  const at::Tensor wide = t.weight.to(at::kFloat);
  const at::Tensor bias = t.bias.to(at::kFloat);
  const kernels::QuantizedMatrix packed(wide.const_data_ptr<float>(), layer.inputs, layer.outputs);
  const kernels::QuantizedMatrix weight = packed.in_blocks(inference::measure_blocks(packed));
  const auto scratch_floats = [&](int64_t rows) { return kernels::int8_matmul_scratch(rows, weight); };
  measure_in_rows(state, layer, at::kChar, scratch_floats, [&](int64_t begin, int64_t rows, float* scratch) {
    kernels::int8_matmul_on_thread<BFloat16>({.rows = rows,
                                              .a = const_storage<BFloat16>(x) + begin * x.size(1),
                                              .a_stride = x.size(1),
                                              .c = storage<BFloat16>(y) + begin * y.size(1),
                                              .c_stride = y.size(1),
                                              .bias = bias.const_data_ptr<float>(),
                                              .activation = activation_of(layer)},
                                             weight, scratch);
  });
}

template <typename Function>
void add(const std::string& name, const Function& function) {
  benchmark::RegisterBenchmark(name.c_str(), function)->Unit(benchmark::kMillisecond)->UseManualTime();
}

void register_layer(const Layer& layer, c10::ScalarType dtype, MatmulLibrary library) {
  const std::string suffix =
      std::string("/") + layer.name + "/" + (dtype == at::kFloat ? "fp32" : "bf16") + "/" + to_string(library);
  add("forward" + suffix, [=](auto& state) {
    const Tensors t(layer, dtype);
    measure(state, layer, dtype, [&] { linear_product(t.x, t.weight, t.bias, library); });
  });
  add("input_gradient" + suffix, [=](auto& state) {
    const Tensors t(layer, dtype);
    measure(state, layer, dtype, [&] { linear_input_gradient(t.dy, t.weight, library); });
  });
  add("weight_gradient" + suffix, [=](auto& state) {
    const Tensors t(layer, dtype);
    measure(state, layer, dtype, [&] { linear_weight_gradient(t.dy, t.x, library); });
  });
  if (std::string_view(layer.name) != "ffn1") return;
  add("forward_gelu" + suffix, [=](auto& state) {
    const Tensors t(layer, dtype);
    measure(state, layer, dtype, [&] {
      activated_linear_product({t.x, t.weight, t.bias}, kernels::Activation::kGelu, KeepProduct::kYes, library);
    });
  });
}

void register_all() {
  for (const Layer& layer : kLayers) {
    add(std::string("packed_forward/") + layer.name + "/int8/strake",
        [=](auto& state) { quantized_forward(state, layer); });
  }
  for (const c10::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Layer& layer : kLayers) {
      for (const MatmulLibrary library : {MatmulLibrary::kStrake, MatmulLibrary::kOnednn, MatmulLibrary::kAten}) {
        register_layer(layer, dtype, library);
      }
      add(std::string("packed_forward/") + layer.name + (dtype == at::kFloat ? "/fp32" : "/bf16") + "/strake",
          [=](auto& state) {
            dtype == at::kFloat ? packed_forward<float>(state, layer, dtype)
                                : packed_forward<kernels::BFloat16>(state, layer, dtype);
          });
    }
  }
}

}  // namespace
}  // namespace strake::models::layers

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  strake::keep_freed_memory();  // memory as a training run has it
  strake::tensors::track_tensor_memory();
  const char* threads = std::getenv("STRAKE_NUM_THREADS");
  strake::tensors::set_compute_threads(threads == nullptr ? 1 : strake::threads_per_rank(1));
  benchmark::AddCustomContext("cpu", strake::describe_cpu());
  benchmark::AddCustomContext("threads", std::to_string(strake::num_threads()));
  strake::models::layers::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
