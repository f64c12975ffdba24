// Every CUDA kernel against the CPU's reference kernel, on small odd shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/test_error.h"
#include "strake/kernels/convert.h"
#include "strake/kernels/cuda/on_cuda.h"
#include "strake/kernels/cuda/table_under_test.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::cuda::cuda_kernels_test {
namespace {

// Arithmetic is fp32 on both sides, in another order and with other exp and erf; then one rounding to T, which may
// fall on the other side. Where it isn't, the test says so.
template <typename T>
constexpr double kRelative = std::is_same_v<T, float> ? 2e-5 : 2.1 * kRounding<T>;
constexpr double kAbsolute = 1e-5;

template <typename T>
class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    table_ = table_under_test();
    if (table_ == nullptr) GTEST_SKIP() << "skipped: no GPU";
    place_ = {.table = table_};
  }

  template <typename U>
  OnDevice<U> put(const std::vector<U>& values) const {
    return OnDevice<U>(*table_, values);
  }
  template <typename U = T>
  OnDevice<U> fresh(int64_t count) const {  // poisoned, so that what is not written shows
    return OnDevice<U>(*table_, count, poison<U>());
  }
  template <typename U>
  static U poison() {
    if constexpr (std::is_same_v<U, double>) {
      return std::numeric_limits<double>::quiet_NaN();
    } else {
      return from_float<U>(std::numeric_limits<float>::quiet_NaN());
    }
  }
  template <typename U>
  static void expect_same(const OnDevice<U>& got, const std::vector<U>& want, const std::string& what,
                          double factor = 1) {
    expect_close(got.values(), doubles(want), factor * kAbsolute, factor * kRelative<U>, what);
  }
  // Of sums of products of which the left factor was rounded to U before, as tensor cores take it: each addend is wrong
  // by up to its rounding, so that a sum of large ones near 0 is wrong by a share of those.
  template <typename U>
  static void expect_same_products(const OnDevice<U>& got, const std::vector<U>& want, const std::string& what) {
    const std::vector<double> values = doubles(want);
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    const double rounding = std::is_same_v<U, float> ? 0 : kRounding<U> * largest;
    expect_close(got.values(), values, 4 * kAbsolute + rounding, 4 * kRelative<U>, what);
  }

  const CudaTable* table_ = nullptr;
  OnCuda place_;
};
TYPED_TEST_SUITE(CudaKernels, StorageTypes);

template <typename T>
std::vector<T> zeros(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count), from_float<T>(0.0F));
}

std::vector<int32_t> random_ids(int64_t count, int32_t rows) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(philox({7, 8}, {static_cast<uint32_t>(i), 0, 0, 0})[0] % rows));
  }
  return ids;
}

// Rows and positions of the tokens on both sides.
struct Index {
  Index(const CudaTable& table, const std::vector<int32_t>& lengths)
      : host(lengths), rows(table, host.rows), positions(table, host.positions) {}
  TokenIndex device() const { return {rows.data(), positions.data()}; }

  TestIndex host;
  OnDevice<int64_t> rows;
  OnDevice<int32_t> positions;
};

Dropout some_dropout(float p) { return {.key = philox_key(3, 4), .site = 77, .p = p}; }

TYPED_TEST(CudaKernels, SumEmbeddings) {
  using T = TypeParam;
  for (const int64_t tokens : {0, 1, 70}) {
    for (const int64_t columns : {1, 5, 300}) {
      const auto word = random_values<T>(11 * columns, 1);
      const auto type = random_values<T>(2 * columns, 2);
      const auto ids = random_ids(tokens, 11);
      const auto types = random_ids(tokens, 2);
      auto want = zeros<T>(tokens * columns);
      embedding_forward<T>({.word = {word.data(), 11, ids.data()},
                            .type = {type.data(), 2, types.data()},
                            .out = want.data(),
                            .tokens = tokens,
                            .columns = columns},
                           Isa::kReference);
      const auto out = this->fresh(tokens * columns);
      const auto word_there = this->put(word), type_there = this->put(type);
      const auto ids_there = this->put(ids), types_there = this->put(types);
      embedding_forward<T>({.word = {word_there.data(), 11, ids_there.data()},
                            .type = {type_there.data(), 2, types_there.data()},
                            .out = out.data(),
                            .tokens = tokens,
                            .columns = columns},
                           this->place_);
      EXPECT_TRUE(same_bits(out.values(), want)) << tokens << " tokens of " << columns;
    }
  }
}

TYPED_TEST(CudaKernels, RefuseIdsOutsideTheirTable) {
  using T = TypeParam;
  const auto table = this->put(random_values<T>(30, 1));
  const auto out = this->fresh(300 * 3);
  std::vector<int32_t> ids(300, 9);
  ids[290] = 10;
  ids[299] = -4;
  const auto ids_there = this->put(ids);
  EXPECT_TRUE(error_of([&] {
                embedding_forward<T>(
                    {.word = {table.data(), 10, ids_there.data()}, .out = out.data(), .tokens = 300, .columns = 3},
                    this->place_);
              }).says(ErrorKind::kData, "token id 10 of token 290"));
  const std::vector<int32_t> good(300, 9);  // not looked at where the host has ids
  const auto good_there = this->put(good);
  const EmbeddingTable<const T> word{table.data(), 10, good_there.data(), {ids.data(), 300}};
  EXPECT_THROW(embedding_forward<T>({.word = word, .out = out.data(), .tokens = 300, .columns = 3}, this->place_),
               Error);
  const auto nll = this->template fresh<float>(300);
  CrossEntropyArgs<T> args{
      .logits = table.data(), .targets = good_there.data(), .nll = nll.data(), .tokens = 3, .classes = 10};
  cross_entropy<T>(args, this->place_);
  args.host_targets = ids.data() + 288;
  EXPECT_THROW(cross_entropy<T>(args, this->place_), Error);
}

// Few rows have runs over many chunks, many rows have some within one and some over a border.
TYPED_TEST(CudaKernels, AddEmbeddingGradients) {
  using T = TypeParam;
  for (const int64_t tokens : {0, 1, 63, 64, 65, 128, 300, 2500}) {
    for (const int32_t rows : {1, 2, 7, 150}) {
      const int64_t columns = 5;
      const auto dout = random_values<T>(tokens * columns, 1);
      const auto before = random_values<float>(rows * columns, 2);
      const auto ids = random_ids(tokens, rows);
      auto want = before;
      embedding_backward<T>(
          {.dout = dout.data(), .table = {want.data(), rows, ids.data()}, .tokens = tokens, .columns = columns},
          Isa::kReference);
      const auto dout_there = this->put(dout);
      const auto ids_there = this->put(ids);
      const auto table = this->put(before);
      embedding_backward<T>({.dout = dout_there.data(),
                             .table = {table.data(), rows, ids_there.data()},
                             .tokens = tokens,
                             .columns = columns},
                            this->place_);
      // Sums of up to 300 values of size 1.
      this->expect_same(table, want, std::to_string(tokens) + " tokens in " + std::to_string(rows) + " rows", 10);
    }
  }
}

TYPED_TEST(CudaKernels, NormalizeSums) {
  using T = TypeParam;
  for (const int64_t columns : {1, 6, 300, 1030, 9000}) {
    for (const float p : {0.0F, 0.3F}) {
      for (const bool has_residual : {false, true}) {
        const Index index(*this->table_, {1, 4});
        const int64_t tokens = 5;
        const int64_t stride = columns + 2;
        const auto x = random_values<T>(tokens * stride, 1), residual = random_values<T>(tokens * stride, 2);
        const auto gamma = random_values<T>(columns, 3), beta = random_values<T>(columns, 4);
        auto sum = zeros<T>(tokens * stride), y = sum;
        auto mean = zeros<float>(tokens), rstd = mean;
        ResidualLayerNormForward<T> args{.x = x.data(),
                                         .residual = has_residual ? residual.data() : nullptr,
                                         .gamma = gamma.data(),
                                         .beta = beta.data(),
                                         .sum = sum.data(),
                                         .y = y.data(),
                                         .mean = mean.data(),
                                         .rstd = rstd.data(),
                                         .tokens = tokens,
                                         .columns = columns,
                                         .stride = stride,
                                         .eps = 1e-3F,
                                         .dropout = some_dropout(p),
                                         .index = index.host.index()};
        residual_layer_norm_forward<T>(args, Isa::kReference);
        const auto x_there = this->put(x), residual_there = this->put(residual);
        const auto gamma_there = this->put(gamma), beta_there = this->put(beta);
        const auto sum_there = this->put(zeros<T>(tokens * stride)), y_there = this->put(zeros<T>(tokens * stride));
        const auto mean_there = this->template fresh<float>(tokens), rstd_there = this->template fresh<float>(tokens);
        args.x = x_there.data(), args.residual = has_residual ? residual_there.data() : nullptr;
        args.gamma = gamma_there.data(), args.beta = beta_there.data();
        args.sum = sum_there.data(), args.y = y_there.data();
        args.mean = mean_there.data(), args.rstd = rstd_there.data();
        args.index = index.device();
        residual_layer_norm_forward<T>(args, this->place_);
        const std::string what = std::to_string(columns) + " columns, p = " + std::to_string(p);
        EXPECT_TRUE(same_bits(sum_there.values(), sum)) << what << ": the masks are the same";
        this->expect_same(y_there, y, what, 4);
        this->expect_same(mean_there, mean, what);
        this->expect_same(rstd_there, rstd, what);
        const auto alone_there = this->put(zeros<T>(tokens * stride));
        args.sum = nullptr, args.y = alone_there.data();
        residual_layer_norm_forward<T>(args, this->place_);
        EXPECT_TRUE(same_bits(alone_there.values(), y_there.values())) << what << ": without sums";
      }
    }
  }
}

TYPED_TEST(CudaKernels, TakeGradientsOfNormalizedSums) {
  using T = TypeParam;
  for (const int64_t columns : {1, 6, 133, 1100, 9000}) {
    for (const float p : {0.0F, 0.3F}) {
      if (columns > 8000 && p == 0) continue;  // slow in emulation
      const Index index(*this->table_, {30, 100});
      const int64_t tokens = 130;
      const auto dy = random_values<T>(tokens * columns, 1), sum = random_values<T>(tokens * columns, 2);
      const auto above = random_values<T>(tokens * columns, 3), gamma = random_values<T>(columns, 4);
      const auto mean = random_values<float>(tokens, 5, 0.1F);
      const std::vector<float> rstd(static_cast<size_t>(tokens), 1.25F);
      auto dsum = zeros<T>(tokens * columns), dx = dsum;
      auto dgamma = zeros<float>(columns), dbeta = dgamma;
      ResidualLayerNormBackward<T> args{.dy = dy.data(),
                                        .sum = sum.data(),
                                        .mean = mean.data(),
                                        .rstd = rstd.data(),
                                        .gamma = gamma.data(),
                                        .dsum_in = above.data(),
                                        .dsum = dsum.data(),
                                        .dx = dx.data(),
                                        .dgamma = dgamma.data(),
                                        .dbeta = dbeta.data(),
                                        .tokens = tokens,
                                        .columns = columns,
                                        .dropout = some_dropout(p),
                                        .index = index.host.index()};
      residual_layer_norm_backward<T>(args, Isa::kReference);
      const auto dy_there = this->put(dy), sum_there = this->put(sum), above_there = this->put(above);
      const auto gamma_there = this->put(gamma);
      const auto mean_there = this->put(mean), rstd_there = this->put(rstd);
      const auto dx_there = this->fresh(tokens * columns);
      const auto dgamma_there = this->template fresh<float>(columns);
      const auto dbeta_there = this->template fresh<float>(columns);
      args.dy = dy_there.data(), args.sum = sum_there.data(), args.gamma = gamma_there.data();
      args.mean = mean_there.data(), args.rstd = rstd_there.data(), args.dsum_in = above_there.data();
      args.dsum = dy_there.data();  // over its input
      args.dx = dx_there.data(), args.dgamma = dgamma_there.data(), args.dbeta = dbeta_there.data();
      args.index = index.device();
      residual_layer_norm_backward<T>(args, this->place_);
      const std::string what = std::to_string(columns) + " columns, p = " + std::to_string(p);
      this->expect_same(dy_there, dsum, what, 4);
      this->expect_same(dx_there, dx, what, 4);
      this->expect_same(dgamma_there, dgamma, what, 10);  // sums of 130 values of size 1
      this->expect_same(dbeta_there, dbeta, what, 10);
    }
  }
}

constexpr Activation kActivations[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
                                       Activation::kSilu, Activation::kTanh,     Activation::kIdentity};

TYPED_TEST(CudaKernels, ActivateWithBias) {
  using T = TypeParam;
  const int64_t tokens = 130;
  for (const int64_t columns : {132, 133}) {
    const auto x = random_values<T>(tokens * columns, 1, 3.0F), dy = random_values<T>(tokens * columns, 2);
    const auto bias = random_values<T>(columns, 3);
    const auto x_there = this->put(x), dy_there = this->put(dy), bias_there = this->put(bias);
    for (const Activation activation : kActivations) {
      for (const bool has_bias : {false, true}) {
        auto y = zeros<T>(tokens * columns), dx = y;
        auto dbias = zeros<float>(columns);
        BiasActivationForward<T> forward{.x = x.data(),
                                         .bias = has_bias ? bias.data() : nullptr,
                                         .y = y.data(),
                                         .tokens = tokens,
                                         .columns = columns,
                                         .activation = activation};
        BiasActivationBackward<T> backward{.dy = dy.data(),
                                           .x = x.data(),
                                           .bias = has_bias ? bias.data() : nullptr,
                                           .dx = dx.data(),
                                           .dbias = has_bias ? dbias.data() : nullptr,
                                           .tokens = tokens,
                                           .columns = columns,
                                           .activation = activation};
        bias_activation_forward<T>(forward, Isa::kReference);
        bias_activation_backward<T>(backward, Isa::kReference);
        const auto y_there = this->fresh(tokens * columns), dx_there = this->fresh(tokens * columns);
        const auto dbias_there = this->template fresh<float>(columns);
        forward.x = backward.x = x_there.data(), backward.dy = dy_there.data();
        forward.bias = backward.bias = has_bias ? bias_there.data() : nullptr;
        forward.y = y_there.data(), backward.dx = dx_there.data();
        backward.dbias = has_bias ? dbias_there.data() : nullptr;
        bias_activation_forward<T>(forward, this->place_);
        bias_activation_backward<T>(backward, this->place_);
        const std::string what = "activation " + std::to_string(static_cast<int>(activation));
        this->expect_same(y_there, y, what);
        this->expect_same(dx_there, dx, what);
        if (has_bias) this->expect_same(dbias_there, dbias, what, 10);  // sums of 130 values of size 1
      }
    }
  }
}

TYPED_TEST(CudaKernels, DropWhatTheCpuDrops) {
  using T = TypeParam;
  const Index index(*this->table_, {3, 1, 9});
  for (const int64_t columns : {1, 4, 1027}) {
    const auto x = random_values<T>(13 * columns, 1);
    auto want = zeros<T>(13 * columns);
    DropoutArgs<T> args{.x = x.data(),
                        .y = want.data(),
                        .tokens = 13,
                        .columns = columns,
                        .dropout = some_dropout(0.2F),
                        .index = index.host.index()};
    dropout<T>(args, Isa::kReference);
    const auto x_there = this->put(x);
    args.x = x_there.data(), args.y = x_there.data(), args.index = index.device();  // in place
    dropout<T>(args, this->place_);
    EXPECT_TRUE(same_bits(x_there.values(), want)) << columns;
  }
}

struct AttentionCase {
  std::vector<int32_t> lengths;
  int64_t heads;
  int64_t head_dim;
  int64_t gap;  // of a row, behind its heads
  AttentionMask mask;
  float p;
};

// Head sizes on both sides of the tilings' limit, sequences that end within tiles, at their end and behind several;
// rows that lie on 16 bytes and others.
std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  for (const AttentionMask mask : {AttentionMask::kFull, AttentionMask::kCausal}) {
    for (const float p : {0.0F, 0.25F}) {
      cases.push_back({{1, 32, 0, 37}, 2, 8, 3, mask, p});
      cases.push_back({{5, 70}, 3, 5, 3, mask, p});
      cases.push_back({{64, 3, 131}, 2, 32, 8, mask, p});
      cases.push_back({{33}, 1, 64, 0, mask, p});
      cases.push_back({{16, 19}, 2, 65, 0, mask, p});
      cases.push_back({{40}, 1, 128, 8, mask, p});
      cases.push_back({{150, 70}, 1, 64, 0, mask, p});  // several tiles of heads that are known when it is compiled
      cases.push_back({{70}, 2, 128, 0, mask, p});
      std::vector<int32_t> many;  // more sequences than a warp has lanes
      for (int32_t i = 0; i < 70; ++i) many.push_back(i % 9 * (i % 3));
      cases.push_back({many, 1, 8, 0, mask, p});
    }
  }
  return cases;
}

TYPED_TEST(CudaKernels, Attend) {
  using T = TypeParam;
  for (const AttentionCase& c : attention_cases()) {
    const Index index(*this->table_, c.lengths);
    std::vector<int32_t> offsets{0};
    for (const int32_t length : c.lengths) offsets.push_back(offsets.back() + length);
    const int64_t tokens = offsets.back(), width = c.heads * c.head_dim;
    const int64_t stride = 3 * width + c.gap, out_stride = width + c.gap;
    const auto qkv = random_values<T>(tokens * stride, 1), dout = random_values<T>(tokens * out_stride, 2);
    auto out = zeros<T>(tokens * out_stride), grad = zeros<T>(tokens * stride);
    auto lse = zeros<float>(tokens * c.heads);
    AttentionShape shape{.offsets = offsets.data(),
                         .num_sequences = static_cast<int64_t>(c.lengths.size()),
                         .num_tokens = tokens,
                         .num_heads = c.heads,
                         .head_dim = c.head_dim,
                         .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                         .mask = c.mask,
                         .dropout = some_dropout(c.p),
                         .index = index.host.index()};
    const auto forward = [&](const T* in, T* to, float* sums) {
      return AttentionForward<T>{.shape = shape,
                                 .q = in,
                                 .k = in + width,
                                 .v = in + 2 * width,
                                 .qkv_stride = stride,
                                 .out = to,
                                 .out_stride = out_stride,
                                 .lse = sums};
    };
    const auto backward = [&](const T* in, const T* result, const T* gradient, const float* sums, T* to) {
      return AttentionBackward<T>{.shape = shape,
                                  .q = in,
                                  .k = in + width,
                                  .v = in + 2 * width,
                                  .qkv_stride = stride,
                                  .out = result,
                                  .dout = gradient,
                                  .out_stride = out_stride,
                                  .lse = sums,
                                  .dq = to,
                                  .dk = to + width,
                                  .dv = to + 2 * width,
                                  .grad_stride = stride};
    };
    attention_forward<T>(forward(qkv.data(), out.data(), lse.data()), Isa::kReference);
    attention_backward<T>(backward(qkv.data(), out.data(), dout.data(), lse.data(), grad.data()), Isa::kReference);

    const auto offsets_there = this->put(offsets);
    const int64_t bytes = kept_bytes_of(*std::ranges::max_element(c.lengths));
    const OnDevice<uint8_t> kept(*this->table_, std::vector<uint8_t>(static_cast<size_t>(c.heads * tokens * bytes)));
    shape.offsets = offsets_there.data(), shape.index = index.device();
    shape.kept = kept.data(), shape.kept_bytes = bytes;
    const auto qkv_there = this->put(qkv), dout_there = this->put(dout);
    const OnDevice<T> out_there(*this->table_, zeros<T>(tokens * out_stride));  // gaps stay as they are
    const OnDevice<T> grad_there(*this->table_, zeros<T>(tokens * stride));
    const auto lse_there = this->template fresh<float>(tokens * c.heads);
    attention_forward<T>(forward(qkv_there.data(), out_there.data(), lse_there.data()), this->place_);
    // From the reference's result, so that one rounding is compared, not two.
    const auto result_there = this->put(out);
    attention_backward<T>(
        backward(qkv_there.data(), result_there.data(), dout_there.data(), lse_there.data(), grad_there.data()),
        this->place_);
    const std::string what = std::to_string(c.head_dim) + (c.mask == AttentionMask::kCausal ? " causal" : " full") +
                             " p = " + std::to_string(c.p);
    this->expect_same_products(out_there, out, what);
    this->expect_same(lse_there, lse, what);
    this->expect_same_products(grad_there, grad, what);
  }
}

TYPED_TEST(CudaKernels, TakeTilesOfScoresThatAreAllMinusInfinity) {
  using T = TypeParam;
  if (std::is_same_v<T, float>) GTEST_SKIP() << "fp32 is multiplied in parts, which infinities do not have";
  constexpr int64_t kKeys = 200, kDim = 16;
  std::vector<T> q(kKeys * kDim, from_float<T>(1.0F)), k = random_values<T>(kKeys * kDim, 1),
                                                       v = random_values<T>(kKeys * kDim, 2);
  std::fill_n(k.begin(), 150 * kDim, from_float<T>(-std::numeric_limits<float>::infinity()));
  std::vector<T> out = zeros<T>(kKeys * kDim);
  std::vector<float> lse = zeros<float>(kKeys);
  const std::vector<int32_t> offsets{0, kKeys};
  AttentionForward<T> args{.shape = {.offsets = offsets.data(),
                                     .num_sequences = 1,
                                     .num_tokens = kKeys,
                                     .num_heads = 1,
                                     .head_dim = kDim,
                                     .scale = 0.25F},
                           .q = q.data(),
                           .k = k.data(),
                           .v = v.data(),
                           .qkv_stride = kDim,
                           .out = out.data(),
                           .out_stride = kDim,
                           .lse = lse.data()};
  attention_forward<T>(args, Isa::kReference);
  const auto offsets_there = this->put(offsets);
  const auto q_there = this->put(q), k_there = this->put(k), v_there = this->put(v);
  const auto out_there = this->template fresh<T>(kKeys * kDim);
  const auto lse_there = this->template fresh<float>(kKeys);
  args.shape.offsets = offsets_there.data(), args.q = q_there.data(), args.k = k_there.data(), args.v = v_there.data();
  args.out = out_there.data(), args.lse = lse_there.data();
  attention_forward<T>(args, this->place_);
  this->expect_same_products(out_there, out, "after 150 keys of -infinity");
}

TYPED_TEST(CudaKernels, RefuseHeadsThatAreTooLarge) {
  const OnDevice<int32_t> offsets(*this->table_, {0, 1});
  const AttentionForward<TypeParam> args{
      .shape = {
          .offsets = offsets.data(), .num_sequences = 1, .num_tokens = 1, .num_heads = 1, .head_dim = kMaxHeadDim + 1}};
  EXPECT_THROW(attention_forward<TypeParam>(args, this->place_), Error);
}

// The first `columns` of every `stride` values.
template <typename T>
std::vector<T> narrowed(const std::vector<T>& values, int64_t stride, int64_t columns) {
  std::vector<T> result;
  for (auto row = values.begin(); row < values.end(); row += stride) result.insert(result.end(), row, row + columns);
  return result;
}

TYPED_TEST(CudaKernels, TakeCrossEntropy) {
  using T = TypeParam;
  for (const auto& [classes, smoothing] : {std::pair{int64_t{1}, 0.0F},
                                           {2, 0.0F},
                                           {257, 0.0F},
                                           {1500, 0.0F},
                                           {5003, 0.0F},
                                           {1, 0.1F},
                                           {2, 0.1F},
                                           {257, 1.0F},
                                           {5003, 0.3F}}) {
    for (const int64_t stride : {classes, (classes + 15) / 16 * 16}) {
      const int64_t tokens = 7;
      const auto logits = random_values<T>(tokens * stride, 1, 3.0F);
      const auto targets = random_ids(tokens, static_cast<int32_t>(classes));
      auto nll = zeros<float>(tokens);
      auto gradient = zeros<T>(tokens * stride);
      CrossEntropyArgs<T> args{.logits = logits.data(),
                               .targets = targets.data(),
                               .nll = nll.data(),
                               .gradient = gradient.data(),
                               .scale = 0.5F,
                               .smoothing = smoothing,
                               .tokens = tokens,
                               .classes = classes,
                               .stride = stride};
      cross_entropy<T>(args, Isa::kReference);
      const auto logits_there = this->put(logits);
      const auto targets_there = this->put(targets);
      const auto nll_there = this->template fresh<float>(tokens);
      args.logits = logits_there.data(), args.targets = targets_there.data(), args.nll = nll_there.data();
      args.gradient = logits_there.data();  // over its input
      cross_entropy<T>(args, this->place_);
      const std::string what = fmt::format("{} classes, stride {}, smoothing {}", classes, stride, smoothing);
      this->expect_same(nll_there, nll, what);
      expect_close(narrowed(logits_there.values(), stride, classes), doubles(narrowed(gradient, stride, classes)),
                   kAbsolute, kRelative<T>, what);
    }
  }
}

TYPED_TEST(CudaKernels, MakeNanOfLogitsThatAreNotFinite) {
  const auto logits = this->put(std::vector<TypeParam>{from_float<TypeParam>(1.0F),
                                                       from_float<TypeParam>(std::numeric_limits<float>::infinity())});
  const auto targets = this->put(std::vector<int32_t>{0});
  const auto nll = this->template fresh<float>(1);
  cross_entropy<TypeParam>(
      {.logits = logits.data(), .targets = targets.data(), .nll = nll.data(), .tokens = 1, .classes = 2}, this->place_);
  EXPECT_TRUE(std::isnan(nll.values()[0]));
}

TYPED_TEST(CudaKernels, SumColumns) {
  using T = TypeParam;
  for (const int64_t columns : {1, 130}) {
    for (const int64_t tokens : {0, 1, 64, 200, 2049, 4160, 16500}) {
      const int64_t stride = columns + 3;
      const auto x = random_values<T>(tokens * stride, 1);
      auto want = zeros<float>(columns);
      column_sum<T>({.x = x.data(), .stride = stride, .out = want.data(), .tokens = tokens, .columns = columns},
                    Isa::kReference);
      const auto x_there = this->put(x);
      const auto out = this->template fresh<float>(columns);
      column_sum<T>({.x = x_there.data(), .stride = stride, .out = out.data(), .tokens = tokens, .columns = columns},
                    this->place_);
      EXPECT_TRUE(same_bits(out.values(), want)) << "the order is the CPU's: " << tokens << " x " << columns;
    }
  }
}

TYPED_TEST(CudaKernels, RoundAndSquare) {
  using T = TypeParam;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{777}, kSquaresChunk + 5}) {
    const auto x = random_values<T>(count, 1);
    const auto x_there = this->put(x);
    if constexpr (!std::is_same_v<T, float>) {
      const auto wide = random_values<float>(count, 2);
      auto want = zeros<T>(count);
      convert(wide.data(), want.data(), count, Isa::kReference);
      const auto wide_there = this->put(wide);
      const auto narrow_there = this->fresh(count);
      convert(wide_there.data(), narrow_there.data(), count, this->place_);
      EXPECT_TRUE(same_bits(narrow_there.values(), want));
    }
    const int64_t chunks = num_squares_chunks(count);
    std::vector<double> squares(static_cast<size_t>(chunks));
    sum_of_squares(x.data(), count, squares, Isa::kReference);
    const auto partial = this->template fresh<double>(chunks);
    sum_of_squares(x_there.data(), count, std::span(partial.data(), static_cast<size_t>(chunks)), this->place_);
    const auto got = partial.values();
    for (size_t c = 0; c < got.size(); ++c) EXPECT_NEAR(got[c], squares[c], 1e-12 * squares[c]);  // another order
  }
}

}  // namespace
}  // namespace strake::kernels::cuda::cuda_kernels_test
