// The matrix products of RoBERTa-base's linear layers at 864 tokens (32 reviews), through each library that a linear
// layer can take. GFLOPS, and the share of what the processor does in a loop of multiply-adds on registers. Processors
// lower their clock under some instructions, AMX's by a fifth and more, and with what their neighbours do: the loop
// runs on all threads behind each product ("percent", the median), and also alone before ("percent_alone", by the best
// of one thread times the number of threads). Threads that take rows of "packed" do not wait for each other in an
// engine: its "percent" is of their own rates, as that of the loop is. STRAKE_NUM_THREADS sets the threads (1 if
// unset). Arguments after Google Benchmark's own: none. Operands are packed in each call, as in training, but for
// "packed", which is as inference computes it: the weight is packed once and multiplied in measured blocks, each thread
// takes its share of the rows, which lie apart, and ffn1 is activated; "layer" are all four, one after the other. Int8,
// whose peak is that of integers, is timed with the quantization of what it reads: as in an engine, ffn2 quantizes the
// rows of ffn1 in the product, the other rows are quantized, a few at a time, when they have just been written. That
// writing, an engine's attention and norms, is not timed.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
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
constexpr int64_t kHidden = 768;
constexpr int64_t kWide = 3072;
constexpr Layer kLayers[] = {
    {"qkv", kHidden, 3 * kHidden}, {"out", kHidden, kHidden}, {"ffn1", kHidden, kWide}, {"ffn2", kWide, kHidden}};

benchmarks::RegisterLoop register_loop(c10::ScalarType dtype) {
  if (dtype == at::kChar) return benchmarks::int8_register_loop();
  return dtype == at::kFloat ? benchmarks::fp32_register_loop() : benchmarks::bf16_register_loop();
}

double flops_of(std::span<const Layer> layers, int64_t rows) {
  double flops = 0;
  for (const Layer& layer : layers) flops += 2.0 * static_cast<double>(rows * layer.inputs * layer.outputs);
  return flops;
}

// product() computes `flops` and returns the operations a second of all threads, each by its own clock.
template <typename Product>
void measure_rates(benchmark::State& state, double flops, c10::ScalarType dtype, const Product& product) {
  const benchmarks::RegisterLoop loop = register_loop(dtype);
  const double alone = benchmarks::best_rate(loop);
  const auto rounds = static_cast<int>(kLoopSeconds * alone / loop.operations);
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
  const double flops = flops_of({&layer, 1}, kTokens);
  measure_rates(state, flops, dtype, [&] {
    const auto start = Clock::now();
    product();
    return flops / seconds_since(start);
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

template <typename T>
constexpr c10::ScalarType kTypeOf = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;

// A linear layer as inference has it: packed once, and multiplied in measured blocks.
template <typename T>
class PackedLinear {
 public:
  using Value = T;
  explicit PackedLinear(const Layer& layer)
      : activation_(activation_of(layer)), bias_(at::randn({layer.outputs}).to(kTypeOf<T>)), weight_(pack(layer)) {}

  int64_t scratch_floats(int64_t rows) const { return kernels::matmul_scratch<T, T>(rows, weight_); }
  double seconds(int64_t rows, const kernels::MatrixOperand<T>& x, const at::Tensor& y, int64_t first,
                 float* scratch) const {
    const auto start = Clock::now();
    const kernels::MatmulResult<T, T> result{.c = storage<T>(y) + first * y.size(1),
                                             .stride = y.size(1),
                                             .bias = const_storage<T>(bias_),
                                             .activation = activation_};
    kernels::matmul_on_thread<T, T>(
        {.rows = rows, .columns = weight_.columns(), .depth = weight_.depth(), .a = x, .b = {}, .result = result},
        weight_, scratch);
    return seconds_since(start);
  }

 private:
  static kernels::PackedMatrix<T> pack(const Layer& layer) {
    const at::Tensor weight = at::randn({layer.outputs, layer.inputs}).to(kTypeOf<T>);
    const kernels::PackedMatrix<T> packed({const_storage<T>(weight), layer.inputs, kernels::Order::kColumns},
                                          layer.inputs, layer.outputs);
    return packed.in_blocks(inference::measure_blocks(packed));
  }
  std::optional<kernels::Activation> activation_;
  at::Tensor bias_;
  kernels::PackedMatrix<T> weight_;
};

class QuantizedLinear {
 public:
  using Value = kernels::BFloat16;
  explicit QuantizedLinear(const Layer& layer)
      : activation_(activation_of(layer)), bias_(at::randn({layer.outputs})), weight_(pack(layer)) {}

  int64_t scratch_floats(int64_t rows) const {
    return kernels::int8_matmul_scratch(rows, weight_) + kernels::whole_tiles(rows) * (quantized_stride() / 4 + 1) +
           kRowsAtOnce * row_stride() / 2;
  }
  double seconds(int64_t rows, const kernels::MatrixOperand<Value>& x, const at::Tensor& y, int64_t first,
                 float* scratch) const {
    kernels::Int8Matmul<Value> product{.rows = rows,
                                       .a = x.data,
                                       .a_stride = x.stride,
                                       .c = storage<Value>(y) + first * y.size(1),
                                       .c_stride = y.size(1),
                                       .bias = bias_.const_data_ptr<float>(),
                                       .activation = activation_};
    double seconds = 0;
    if (weight_.depth() != kWide) {
      const int64_t floats = kernels::whole_tiles(rows) * quantized_stride() / 4;
      product.quantized = {reinterpret_cast<int8_t*>(scratch), quantized_stride(), scratch + floats};
      scratch += floats + kernels::whole_tiles(rows);
      seconds += seconds_to_quantize(rows, x, product.quantized, reinterpret_cast<Value*>(scratch));
      scratch += kRowsAtOnce * row_stride() / 2;
    }
    const auto start = Clock::now();
    kernels::int8_matmul_on_thread<Value>(product, weight_, scratch);
    return seconds + seconds_since(start);
  }

 private:
  static constexpr int64_t kRowsAtOnce = 16;

  int64_t quantized_stride() const { return kernels::quantized_stride(weight_.depth()); }
  int64_t row_stride() const { return kernels::row_stride<Value>(weight_.depth()); }

  // Of rows that have just been written to `written`.
  double seconds_to_quantize(int64_t rows, const kernels::MatrixOperand<Value>& x, const kernels::QuantizedRows& to,
                             Value* written) const {
    double seconds = 0;
    for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
      const int64_t some = std::min(kRowsAtOnce, rows - row);
      for (int64_t i = 0; i < some; ++i) {
        std::copy_n(x.data + (row + i) * x.stride, weight_.depth(), written + i * row_stride());
      }
      const auto start = Clock::now();
      kernels::quantize_rows({written, row_stride(), some, weight_.depth()}, to.from(row));
      seconds += seconds_since(start);
    }
    return seconds;
  }

  static kernels::QuantizedMatrix pack(const Layer& layer) {
    const at::Tensor weight = at::randn({layer.outputs, layer.inputs});
    const kernels::QuantizedMatrix packed(weight.const_data_ptr<float>(), layer.inputs, layer.outputs);
    return packed.in_blocks(inference::measure_blocks(packed));
  }
  std::optional<kernels::Activation> activation_;
  at::Tensor bias_;
  kernels::QuantizedMatrix weight_;
};

// One after the other. Threads take rows, as those of an engine take texts; ffn2 reads what ffn1 gave.
template <class Linear>
void packed_forward(benchmark::State& state, std::span<const Layer> layers, c10::ScalarType dtype) {
  using T = typename Linear::Value;
  const auto activations = [](int64_t columns) {
    return at::randn({kTokens, kernels::row_stride<T>(columns)}).to(kTypeOf<T>);
  };
  const std::map<int64_t, at::Tensor> inputs{{kHidden, activations(kHidden)}, {kWide, activations(kWide)}};
  const std::map<int64_t, at::Tensor> outputs{
      {kHidden, activations(kHidden)}, {3 * kHidden, activations(3 * kHidden)}, {kWide, inputs.at(kWide)}};
  const std::vector<Linear> linears(layers.begin(), layers.end());
  const int64_t rows = (kTokens + num_threads() - 1) / num_threads();
  int64_t floats = 0;
  for (const Linear& linear : linears) floats = std::max(floats, linear.scratch_floats(rows));
  std::vector<kernels::AlignedFloats> scratch;
  for (int i = 0; i < num_threads(); ++i) scratch.emplace_back(floats);
  std::vector<double> rates(static_cast<size_t>(num_threads()));
  measure_rates(state, flops_of(layers, kTokens), dtype, [&] {
    parallel_for(num_threads(), 1, [&](int64_t thread, int64_t) {
      const int64_t begin = std::min(kTokens, thread * rows);
      const int64_t count = std::min(kTokens, begin + rows) - begin;
      double seconds = 0;
      for (size_t i = 0; i < linears.size(); ++i) {
        const at::Tensor& x = inputs.at(layers[i].inputs);
        seconds +=
            linears[i].seconds(count, {const_storage<T>(x) + begin * x.size(1), x.size(1)},
                               outputs.at(layers[i].outputs), begin, scratch[static_cast<size_t>(thread)].data());
      }
      rates[static_cast<size_t>(thread)] = flops_of(layers, count) / seconds;
    });
    return std::accumulate(rates.begin(), rates.end(), 0.0);
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

void register_packed(const std::string& name, std::span<const Layer> layers) {
  const auto add_packed = [&]<class Linear>(const char* precision, c10::ScalarType dtype) {
    add("packed_forward/" + name + "/" + precision + "/strake",
        [=](auto& state) { packed_forward<Linear>(state, layers, dtype); });
  };
  add_packed.operator()<PackedLinear<float>>("fp32", at::kFloat);
  add_packed.operator()<PackedLinear<kernels::BFloat16>>("bf16", at::kBFloat16);
  add_packed.operator()<QuantizedLinear>("int8", at::kChar);
}

void register_all() {
  for (const Layer& layer : kLayers) register_packed(layer.name, {&layer, 1});
  register_packed("layer", kLayers);
  for (const c10::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Layer& layer : kLayers) {
      for (const MatmulLibrary library : {MatmulLibrary::kStrake, MatmulLibrary::kOnednn, MatmulLibrary::kAten}) {
        register_layer(layer, dtype, library);
      }
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
