// Every CPU kernel at the shapes of RoBERTa-base fine-tuning (32 reviews, 864 tokens), each rung beside the reference.
// Arguments after Google Benchmark's own: none. STRAKE_NUM_THREADS sets the threads (1 if unset). bytes_per_second
// counts what a kernel must read and write; flops counts multiplications and additions of the matrix products of
// attention.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "strake/core/philox.h"
#include "strake/core/threads.h"
#include "strake/kernels/attention.h"
#include "strake/kernels/bias_activation.h"
#include "strake/kernels/column_sum.h"
#include "strake/kernels/convert.h"
#include "strake/kernels/cross_entropy.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/embedding.h"
#include "strake/kernels/global_norm.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/lamb.h"
#include "strake/kernels/optimizer_pass.h"
#include "strake/kernels/residual_layer_norm.h"

namespace strake::kernels {
namespace {

constexpr int64_t kSequences = 32;
constexpr int64_t kTokens = 864;
constexpr int64_t kHidden = 768;
constexpr int64_t kHeads = 12;
constexpr int64_t kInner = 3072;
constexpr int64_t kVocabulary = 50265;
constexpr int64_t kParameters = 124'600'000;
constexpr int64_t kUpdated = int64_t{64} << 20;  // by optimizers

template <typename T>
std::vector<T> random_values(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const PhiloxBlock bits = philox({1, 2}, {static_cast<uint32_t>(i), 0, 0, 0});
    values[i] = from_float<T>(4.0F * to_uniform(bits[0]) - 2.0F);
  }
  return values;
}

// 864 tokens: 32 sequences of 12, 13, ... 42 tokens and a filler, or a few of equal length.
struct Batch {
  explicit Batch(int64_t sequences = kSequences) : offsets{0} {
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t length = sequences < kSequences ? kTokens / sequences
                             : s + 1 < sequences    ? 12 + s
                                                    : kTokens - offsets.back();
      for (int64_t t = 0; t < length; ++t) {
        rows.push_back(s);
        positions.push_back(static_cast<int32_t>(t));
      }
      offsets.push_back(static_cast<int32_t>(offsets.back() + length));
    }
  }
  TokenIndex index() const { return {rows.data(), positions.data()}; }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  std::vector<int32_t> offsets;
  std::vector<int64_t> rows;
  std::vector<int32_t> positions;
};

Dropout with_dropout(int percent) { return {.key = {3, 4}, .site = 1, .p = static_cast<float>(percent) / 100.0F}; }

void report_bytes(benchmark::State& state, double bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(static_cast<double>(state.iterations()) * bytes));
}

double attention_flops(const Batch& batch, int products) {
  double squares = 0;
  for (size_t s = 0; s + 1 < batch.offsets.size(); ++s) squares += std::pow(batch.offsets[s + 1] - batch.offsets[s], 2);
  return 2.0 * products * squares * kHidden;
}

AttentionShape attention_shape(const Batch& batch, int percent) {
  return {.offsets = batch.offsets.data(),
          .num_sequences = batch.sequences(),
          .num_heads = kHeads,
          .head_dim = kHidden / kHeads,
          .scale = 0.125F,
          .dropout = with_dropout(percent),
          .index = batch.index()};
}

template <typename T>
void attention(benchmark::State& state, Isa isa, int64_t sequences, int percent, int direction) {
  const Batch batch(sequences);
  const auto qkv = random_values<T>(kTokens * 3 * kHidden);
  const auto dout = random_values<T>(kTokens * kHidden);
  std::vector<T> out(static_cast<size_t>(kTokens * kHidden));
  std::vector<T> grad(qkv.size());
  std::vector<float> lse(static_cast<size_t>(kTokens * kHeads));
  const AttentionForward<T> forward{.shape = attention_shape(batch, percent),
                                    .q = qkv.data(),
                                    .k = qkv.data() + kHidden,
                                    .v = qkv.data() + 2 * kHidden,
                                    .qkv_stride = 3 * kHidden,
                                    .out = out.data(),
                                    .out_stride = kHidden,
                                    .lse = lse.data()};
  const AttentionBackward<T> backward{.shape = forward.shape,
                                      .q = forward.q,
                                      .k = forward.k,
                                      .v = forward.v,
                                      .qkv_stride = 3 * kHidden,
                                      .out = out.data(),
                                      .dout = dout.data(),
                                      .out_stride = kHidden,
                                      .lse = lse.data(),
                                      .dq = grad.data(),
                                      .dk = grad.data() + kHidden,
                                      .dv = grad.data() + 2 * kHidden,
                                      .grad_stride = 3 * kHidden};
  attention_forward<T>(forward, isa);
  for (auto _ : state) {
    if (direction == 0) {
      attention_forward<T>(forward, isa);
    } else {
      attention_backward<T>(backward, isa);
    }
  }
  report_bytes(state, static_cast<double>(sizeof(T)) * kTokens * kHidden * (direction == 0 ? 4 : 8));
  state.counters["flops"] =
      benchmark::Counter(attention_flops(batch, direction == 0 ? 2 : 5), benchmark::Counter::kIsIterationInvariantRate);
}

template <typename T>
void layer_norm(benchmark::State& state, Isa isa, int percent, int direction) {
  const Batch batch;
  const auto x = random_values<T>(kTokens * kHidden);
  const auto residual = random_values<T>(kTokens * kHidden);
  const auto weights = random_values<T>(kHidden);
  std::vector<T> sum(x.size()), y(x.size()), dx(x.size());
  std::vector<float> mean(kTokens), rstd(kTokens), dgamma(kHidden), dbeta(kHidden);
  const ResidualLayerNormForward<T> forward{.x = x.data(),
                                            .residual = residual.data(),
                                            .gamma = weights.data(),
                                            .beta = weights.data(),
                                            .sum = sum.data(),
                                            .y = y.data(),
                                            .mean = mean.data(),
                                            .rstd = rstd.data(),
                                            .tokens = kTokens,
                                            .columns = kHidden,
                                            .dropout = with_dropout(percent),
                                            .index = batch.index()};
  const ResidualLayerNormBackward<T> backward{.dy = residual.data(),
                                              .sum = sum.data(),
                                              .mean = mean.data(),
                                              .rstd = rstd.data(),
                                              .gamma = weights.data(),
                                              .dsum = y.data(),
                                              .dx = dx.data(),
                                              .dgamma = dgamma.data(),
                                              .dbeta = dbeta.data(),
                                              .tokens = kTokens,
                                              .columns = kHidden,
                                              .dropout = with_dropout(percent),
                                              .index = batch.index()};
  residual_layer_norm_forward<T>(forward, isa);
  for (auto _ : state) {
    if (direction == 0) {
      residual_layer_norm_forward<T>(forward, isa);
    } else {
      residual_layer_norm_backward<T>(backward, isa);
    }
  }
  report_bytes(state, static_cast<double>(sizeof(T)) * kTokens * kHidden * 4);
}

template <typename T>
void activation(benchmark::State& state, Isa isa, Activation kind, int direction) {
  const auto x = random_values<T>(kTokens * kInner);
  const auto dy = random_values<T>(kTokens * kInner);
  const auto bias = random_values<T>(kInner);
  std::vector<T> y(x.size());
  std::vector<float> dbias(kInner);
  for (auto _ : state) {
    if (direction == 0) {
      bias_activation_forward<T>(
          {.x = x.data(), .bias = bias.data(), .y = y.data(), .tokens = kTokens, .columns = kInner, .activation = kind},
          isa);
    } else {
      bias_activation_backward<T>({.dy = dy.data(),
                                   .x = x.data(),
                                   .bias = bias.data(),
                                   .dx = y.data(),
                                   .dbias = dbias.data(),
                                   .tokens = kTokens,
                                   .columns = kInner,
                                   .activation = kind},
                                  isa);
    }
  }
  report_bytes(state, static_cast<double>(sizeof(T)) * kTokens * kInner * (direction == 0 ? 2 : 3));
}

template <typename T>
void sum_columns(benchmark::State& state, Isa isa) {
  const auto x = random_values<T>(kTokens * kInner);
  std::vector<float> out(kInner);
  for (auto _ : state) {
    column_sum<T>({.x = x.data(), .out = out.data(), .tokens = kTokens, .columns = kInner}, isa);
  }
  report_bytes(state, static_cast<double>(sizeof(T)) * kTokens * kInner);
}

template <typename T>
void predict_tokens(benchmark::State& state, Isa isa) {
  constexpr int64_t kRows = 256;
  constexpr int64_t kVocabulary = 50257;
  const auto logits = random_values<T>(kRows * kVocabulary);
  std::vector<T> gradient(logits.size());
  std::vector<int32_t> targets;
  for (int32_t t = 0; t < kRows; ++t) targets.push_back(t * 196);
  std::vector<float> nll(targets.size());
  for (auto _ : state) {
    cross_entropy<T>({.logits = logits.data(),
                      .targets = targets.data(),
                      .nll = nll.data(),
                      .gradient = gradient.data(),
                      .tokens = kRows,
                      .classes = kVocabulary},
                     isa);
  }
  report_bytes(state, 2.0 * sizeof(T) * kRows * kVocabulary);
}

template <typename T>
void drop(benchmark::State& state, Isa isa) {
  const Batch batch;
  const auto x = random_values<T>(kTokens * kHidden);
  std::vector<T> y(x.size());
  for (auto _ : state) {
    dropout<T>({.x = x.data(),
                .y = y.data(),
                .tokens = kTokens,
                .columns = kHidden,
                .dropout = with_dropout(10),
                .index = batch.index()},
               isa);
  }
  report_bytes(state, static_cast<double>(sizeof(T)) * kTokens * kHidden * 2);
}

template <typename T>
void embedding(benchmark::State& state, Isa isa, int direction) {
  const Batch batch;
  std::vector<int32_t> ids(kTokens);
  for (size_t t = 0; t < ids.size(); ++t) {
    ids[t] = static_cast<int32_t>(philox({5, 6}, {static_cast<uint32_t>(t), 0, 0, 0})[0] % kVocabulary);
  }
  const std::vector<int32_t> types(kTokens, 0);
  const auto word = random_values<T>(kVocabulary * kHidden);
  const auto position = random_values<T>(514 * kHidden);
  auto rows = random_values<T>(kTokens * kHidden);
  std::vector<float> gradient(static_cast<size_t>(direction == 0 ? 0 : kVocabulary * kHidden));
  for (auto _ : state) {
    if (direction == 0) {
      embedding_forward<T>({.word = {word.data(), kVocabulary, ids.data()},
                            .position = {position.data(), 514, batch.positions.data()},
                            .type = {position.data(), 1, types.data()},
                            .out = rows.data(),
                            .tokens = kTokens,
                            .columns = kHidden},
                           isa);
    } else {
      embedding_backward<T>({.dout = rows.data(),
                             .table = {gradient.data(), kVocabulary, ids.data()},
                             .tokens = kTokens,
                             .columns = kHidden},
                            isa);
    }
  }
  report_bytes(state, static_cast<double>(kTokens * kHidden) * (direction == 0 ? 3 * sizeof(T) : sizeof(T) + 8));
}

// An optimizer step over one flat buffer.
struct Update {
  explicit Update(int64_t count, int num_states, bool rounds)
      : parameters(static_cast<size_t>(count), 0.1F),
        gradients(parameters.size(), 0.01F),
        states(static_cast<size_t>(num_states), std::vector<float>(parameters.size())),
        rounded(rounds ? parameters.size() : 0),
        segments{{0, count, 0.01}},
        window{.parameters = parameters.data(), .gradients = gradients.data(), .count = count, .segments = segments} {
    for (size_t i = 0; i < states.size(); ++i) window.states[i] = states[i].data();
    if (rounds) window.rounded = rounded.data();
  }
  // Reads and writes of all buffers; the gradient is read only.
  double bytes() const {
    return static_cast<double>(window.count) *
           (12.0 + 8.0 * static_cast<double>(states.size()) + (rounded.empty() ? 0.0 : 2.0));
  }
  UpdateStep next() { return {.learning_rate = 1e-5, .number = ++number}; }

  std::vector<float> parameters, gradients;
  std::vector<std::vector<float>> states;
  std::vector<BFloat16> rounded;
  std::vector<TensorSegment> segments;
  FlatWindow window;
  int64_t number = 0;
};

template <typename Step>
void update(benchmark::State& state, Update update, const Step& step) {
  for (auto _ : state) step(update.window, update.next());
  report_bytes(state, update.bytes());
}

void update_with_lamb(benchmark::State& state, Isa isa, int64_t count) {
  Update update(count, 2, false);
  std::vector<LambSums> sums(static_cast<size_t>(num_lamb_sums(update.segments)));
  for (auto _ : state) {
    const UpdateStep step = update.next();
    lamb_moments(update.window, step, {}, sums, isa);
    lamb_apply(update.window, step, {}, lamb_coefficients(update.segments, sums, {}), isa);
  }
  report_bytes(state, 40.0 * static_cast<double>(count));  // parameter and moments are read twice
}

void norm(benchmark::State& state, Isa isa) {
  const std::vector<float> x(kParameters, 0.5F);
  std::vector<double> partial(static_cast<size_t>(num_squares_chunks(kParameters)));
  for (auto _ : state) {
    sum_of_squares(x.data(), kParameters, partial, isa);
    benchmark::DoNotOptimize(add_in_order(partial));
  }
  report_bytes(state, 4.0 * kParameters);
}

void round_all(benchmark::State& state, Isa isa) {
  const std::vector<float> x(kParameters, 0.5F);
  std::vector<BFloat16> y(kParameters);
  for (auto _ : state) convert(x.data(), y.data(), kParameters, isa);
  report_bytes(state, 6.0 * kParameters);
}

constexpr std::array kWays{"forward", "backward"};

template <typename... Function>
void add(const std::string& name, Isa isa, Function... function) {
  benchmark::RegisterBenchmark((name + "/" + to_string(isa)).c_str(), function...)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

template <typename T>
void register_with_dropout(Isa isa, int direction, int percent, const std::string& suffix) {
  for (const int64_t sequences : {kSequences, int64_t{2}}) {
    add(fmt::format("attention_{}/{}_sequences/{}", kWays.at(direction), sequences, suffix), isa,
        [=](auto& state) { attention<T>(state, isa, sequences, percent, direction); });
  }
  add(fmt::format("layer_norm_{}/{}", kWays.at(direction), suffix), isa,
      [=](auto& state) { layer_norm<T>(state, isa, percent, direction); });
}

template <typename T>
void register_for(Isa isa, const std::string& type) {
  for (const int direction : {0, 1}) {
    register_with_dropout<T>(isa, direction, 0, type);
    register_with_dropout<T>(isa, direction, 10, type + "/dropout");
    const auto add_way = [&](const char* kernel, auto function) {
      add(fmt::format("{}_{}/{}", kernel, kWays.at(direction), type), isa, function);
    };
    add_way("bias_gelu", [=](auto& s) { activation<T>(s, isa, Activation::kGelu, direction); });
    add_way("bias_gelu_tanh", [=](auto& s) { activation<T>(s, isa, Activation::kGeluTanh, direction); });
    add_way("embedding", [=](auto& state) { embedding<T>(state, isa, direction); });
  }
  add("column_sum/" + type, isa, [=](auto& state) { sum_columns<T>(state, isa); });
  add("cross_entropy/" + type, isa, [=](auto& state) { predict_tokens<T>(state, isa); });
  add("dropout/" + type, isa, [=](auto& state) { drop<T>(state, isa); });
}

void register_all() {
  for (const Isa isa : usable_rungs()) {
    register_for<float>(isa, "float");
    register_for<BFloat16>(isa, "bfloat16");
    const auto add_update = [isa](const std::string& name, int num_states, bool rounds, auto step) {
      add(name, isa, [=](auto& state) { update(state, Update(kUpdated, num_states, rounds), step); });
    };
    add_update("adamw", 2, false, [=](auto& window, auto step) { adam(window, step, {}, isa); });
    add_update("adamw_rounding", 2, true, [=](auto& window, auto step) { adam(window, step, {}, isa); });
    add_update("adagrad", 1, false, [=](auto& window, auto step) { adagrad(window, step, {}, isa); });
    add_update("lion", 1, false, [=](auto& window, auto step) { lion(window, step, {}, isa); });
    add_update("sgd", 0, false, [=](auto& window, auto step) { sgd(window, step, {}, isa); });
    add_update("sgd_momentum", 1, false, [=](auto& window, auto step) { sgd(window, step, {.momentum = 0.9}, isa); });
    add("lamb", isa, [=](auto& state) { update_with_lamb(state, isa, kUpdated); });
    add("global_norm", isa, [=](auto& state) { norm(state, isa); });
    add("convert_to_bfloat16", isa, [=](auto& state) { round_all(state, isa); });
  }
}

}  // namespace
}  // namespace strake::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const char* threads = std::getenv("STRAKE_NUM_THREADS");
  strake::set_num_threads(threads == nullptr ? 1 : strake::threads_per_rank(1));
  benchmark::AddCustomContext("cpu", strake::describe_cpu());
  benchmark::AddCustomContext("threads", std::to_string(strake::num_threads()));
  strake::kernels::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
