// The optimizers' pass on CUDA devices against the CPU's reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "strake/kernels/cuda/on_cuda.h"
#include "strake/kernels/cuda/table_under_test.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::cuda::cuda_optimizer_test {
namespace {

// Gradients of type T, parameters of M, states of S: Adam's.
template <typename T, typename M, typename S = M>
struct Pass {
  std::vector<M> parameters = random_values<M>(kCount, 1);
  std::vector<S> first = random_values<S>(kCount, 2, 0.1F), second, third;
  std::vector<T> gradients = random_values<T>(kCount, 3);
  std::vector<BFloat16> rounded = random_values<BFloat16>(kCount, 4);
  static constexpr int64_t kCount = 20000;

  Pass() {
    for (const S& value : random_values<S>(kCount, 5)) second.push_back(from_float<S>(std::abs(to_float(value))));
    third = {second.rbegin(), second.rend()};
  }
};

// Two tensors of several blocks each, and between them more small ones than a launch takes, some with gaps between.
std::vector<TensorSegment> many_segments() {
  std::vector<TensorSegment> segments{{20, 9000, 0.1}};
  for (int64_t i = 0; i < 150; ++i) {
    const int64_t begin = segments.back().end + i % 3;
    segments.push_back({begin, begin + 1 + 7 * i % 11, 0.1 * static_cast<double>(i % 4)});
  }
  segments.push_back({segments.back().end, segments.back().end + 8192, 0.2});
  segments.push_back({segments.back().end, 30000, 0.3});
  return segments;
}

template <typename T, typename M, typename S = M, typename Rule, typename Update>
void expect_same_pass(const CudaTable& table, const Rule& rule, const Update& update, const Pass<T, M, S>& start = {}) {
  const std::vector<TensorSegment> segments = many_segments();
  const UpdateStep step{.learning_rate = 0.01, .number = 3, .gradient_scale = 0.5F, .gradients = AfterUse::kZero};
  Pass<T, M, S> host = start;
  const OnDevice<M> parameters(table, start.parameters);
  const OnDevice<S> first(table, start.first), second(table, start.second), third(table, start.third);
  const OnDevice<T> gradients(table, start.gradients);
  const OnDevice<BFloat16> rounded(table, start.rounded);
  FlatWindow window{.parameters = host.parameters.data(),
                    .gradients = host.gradients.data(),
                    .states = {host.first.data(), host.second.data(), host.third.data()},
                    .begin = 50,
                    .count = Pass<T, M, S>::kCount,
                    .segments = segments};
  if constexpr (std::is_same_v<M, float>) window.rounded = host.rounded.data();
  update(window, step, rule, Isa::kReference);
  window.parameters = parameters.data(), window.gradients = gradients.data();
  window.states = {first.data(), second.data(), third.data()};
  if constexpr (std::is_same_v<M, float>) window.rounded = rounded.data();
  update(window, step, rule, OnCuda{.table = &table});
  EXPECT_TRUE(same_bits(parameters.values(), host.parameters));
  EXPECT_TRUE(same_bits(first.values(), host.first));
  EXPECT_TRUE(same_bits(second.values(), host.second));
  EXPECT_TRUE(same_bits(third.values(), host.third));
  EXPECT_TRUE(same_bits(gradients.values(), host.gradients));
  EXPECT_TRUE(same_bits(rounded.values(), host.rounded));
  EXPECT_FALSE(same_bits(host.parameters, start.parameters));
  EXPECT_TRUE(std::ranges::all_of(doubles(host.parameters), [](double p) { return std::isfinite(p); }))
      << "a NaN's bits differ between machines";
}

template <typename T, typename M>
void expect_same_passes(const CudaTable& table) {
  const auto by_adam = [](auto&&... args) { adam(args...); };
  for (const WeightDecay decay : {WeightDecay::kDecoupled, WeightDecay::kInGradient}) {
    expect_same_pass<T, M>(table, Adam{.weight_decay = decay}, by_adam);
  }
  expect_same_pass<T, M>(table, Adam{.amsgrad = true}, by_adam);
  Pass<T, M> sums_of_squares;
  sums_of_squares.first = sums_of_squares.second;  // not negative
  expect_same_pass<T, M>(table, Adagrad{}, [](auto&&... args) { adagrad(args...); }, sums_of_squares);
  expect_same_pass<T, M>(table, Lion{}, [](auto&&... args) { lion(args...); });
  for (const double momentum : {0.0, 0.9}) {
    expect_same_pass<T, M>(table, Sgd{.momentum = momentum, .nesterov = momentum > 0},
                           [](auto&&... args) { sgd(args...); });
  }
}

template <typename T>
class CudaKernelsOfOptimizers : public testing::Test {};
TYPED_TEST_SUITE(CudaKernelsOfOptimizers, StorageTypes);

TYPED_TEST(CudaKernelsOfOptimizers, UpdateToTheBitsOfTheCpu) {
  const CudaTable* table = table_under_test();
  if (table == nullptr) GTEST_SKIP() << "skipped: no GPU";
  expect_same_passes<TypeParam, float>(*table);
  if constexpr (std::is_same_v<TypeParam, BFloat16>) expect_same_passes<BFloat16, BFloat16>(*table);
  if constexpr (std::is_same_v<TypeParam, Half>) {
    expect_same_pass<Half, Half, float>(*table, Adam{}, [](auto&&... args) { adam(args...); });
  }
}

// A window of several chunks behind others, of which tensors end in and between: the window's first chunk has the end
// of one, several small ones lie in one chunk, and one has two chunks of its own.
constexpr int64_t kLambBegin = kSquaresChunk;
constexpr int64_t kLambCount = 4 * kSquaresChunk + 100;
std::vector<TensorSegment> lamb_segments() {
  std::vector<TensorSegment> segments{{0, 20, 0.1}, {20, kLambBegin + 300, 0.1}};
  for (int64_t i = 0; i < 150; ++i) {
    const int64_t begin = segments.back().end + i % 3;
    segments.push_back({begin, begin + 1 + 7 * i % 11, 0.1 * static_cast<double>(i % 4)});
  }
  segments.push_back({segments.back().end, segments.back().end, 0.2});
  segments.push_back({segments.back().end + 64, kLambBegin + kLambCount - 50, 0.2});
  return segments;
}

template <typename M>
struct LambState {
  std::vector<M> parameters = random_values<M>(kLambCount, 1);
  std::vector<M> first = random_values<M>(kLambCount, 2, 0.1F), second;
  std::vector<BFloat16> rounded = random_values<BFloat16>(kLambCount, 4);

  LambState() {
    for (const M& value : random_values<M>(kLambCount, 5)) second.push_back(from_float<M>(std::abs(to_float(value))));
  }
};

template <typename T, typename M>
void expect_same_lamb(const CudaTable& table) {
  const std::vector<TensorSegment> segments = lamb_segments();
  const OnCuda cuda{.table = &table};
  const UpdateStep prepare{.learning_rate = 0.01, .number = 3, .gradient_scale = 0.5F};
  UpdateStep apply = prepare;
  apply.gradients = AfterUse::kZero;
  LambState<M> host;
  std::vector<T> host_gradients = random_values<T>(kLambCount, 3);
  const OnDevice<M> parameters(table, host.parameters), first(table, host.first), second(table, host.second);
  const OnDevice<T> gradients(table, host_gradients);
  const OnDevice<BFloat16> rounded(table, host.rounded);
  FlatWindow on_host{.parameters = host.parameters.data(),
                     .gradients = host_gradients.data(),
                     .states = {host.first.data(), host.second.data()},
                     .begin = kLambBegin,
                     .count = kLambCount,
                     .segments = segments};
  FlatWindow on_device = on_host;
  on_device.parameters = parameters.data(), on_device.gradients = gradients.data();
  on_device.states = {first.data(), second.data()};
  if constexpr (std::is_same_v<M, float>) {
    on_host.rounded = host.rounded.data();
    on_device.rounded = rounded.data();
  }

  std::vector<LambSums> want(static_cast<size_t>(num_lamb_sums(segments)), LambSums{-1, -1});
  const OnDevice<LambSums> sums(table, want);
  lamb_moments(on_host, prepare, {}, want, Isa::kReference);
  lamb_moments(on_device, prepare, {}, {sums.data(), want.size()}, cuda);
  const std::vector<LambSums> got = sums.values();
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i].parameter, want[i].parameter, 1e-12 * std::abs(want[i].parameter)) << i;  // in another order
    EXPECT_NEAR(got[i].update, want[i].update, 1e-12 * std::abs(want[i].update)) << i;
  }
  EXPECT_EQ(got[0].parameter, -1) << "of a chunk before the window";
  EXPECT_TRUE(same_bits(first.values(), host.first));
  EXPECT_TRUE(same_bits(second.values(), host.second));
  EXPECT_TRUE(same_bits(parameters.values(), host.parameters));

  std::vector<double> coefficients;
  for (size_t i = 0; i < segments.size(); ++i) coefficients.push_back(0.5 + 0.01 * static_cast<double>(i));
  const std::vector<M> before = host.parameters;
  lamb_apply(on_host, apply, {}, coefficients, Isa::kReference);
  lamb_apply(on_device, apply, {}, coefficients, cuda);
  EXPECT_TRUE(same_bits(parameters.values(), host.parameters));
  EXPECT_TRUE(same_bits(rounded.values(), host.rounded));
  EXPECT_TRUE(same_bits(gradients.values(), host_gradients));
  EXPECT_FALSE(same_bits(host.parameters, before));
}

TYPED_TEST(CudaKernelsOfOptimizers, TakeLambsSumsAndUpdateToTheBitsOfTheCpu) {
  const CudaTable* table = table_under_test();
  if (table == nullptr) GTEST_SKIP() << "skipped: no GPU";
  expect_same_lamb<TypeParam, float>(*table);
  if constexpr (std::is_same_v<TypeParam, BFloat16>) expect_same_lamb<BFloat16, BFloat16>(*table);
}

}  // namespace
}  // namespace strake::kernels::cuda::cuda_optimizer_test
