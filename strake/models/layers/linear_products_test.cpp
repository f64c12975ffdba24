#include "strake/models/layers/linear_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/tensors/tracked_memory.h"

namespace strake::models::layers::linear_products_test {
namespace {

using Case = std::tuple<c10::ScalarType, MatmulLibrary>;

// oneDNN's products of bf16 begin with AVX-512.
bool may_be_missing(c10::ScalarType dtype, MatmulLibrary library) {
  return library == MatmulLibrary::kOnednn && dtype == c10::kBFloat16 && !cpu_features().avx512;
}

class LinearProducts : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (may_be_missing(dtype(), library())) GTEST_SKIP() << "oneDNN may have no product of bf16 without AVX-512";
  }
  static c10::ScalarType dtype() { return std::get<0>(GetParam()); }
  static MatmulLibrary library() { return std::get<1>(GetParam()); }
  // Rounding of sums of 64 products in fp32, and of the result to bf16 (8 bits) or fp16 (11 bits).
  static double tolerance() { return dtype() == c10::kFloat ? 1e-5 : dtype() == c10::kHalf ? 1e-3 : 1e-2; }
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_EQ(actual.scalar_type(), dtype());
    const double error = (actual.to(c10::kDouble) - expected).abs().max().item<double>();
    EXPECT_LE(error, tolerance() * expected.abs().max().item<double>());
  }
};

TEST_P(LinearProducts, AgreeWithDoublePrecision) {
  const at::Tensor x = at::randn({37, 64}).to(dtype());
  const at::Tensor weight = at::randn({48, 64}).to(dtype());
  const at::Tensor bias = at::randn({48}).to(dtype());
  const at::Tensor dy = at::randn({37, 48}).to(dtype());
  const at::Tensor x64 = x.to(c10::kDouble);
  const at::Tensor w64 = weight.to(c10::kDouble);
  const at::Tensor dy64 = dy.to(c10::kDouble);
  expect_close(linear_product(x, weight, bias, library()), at::mm(x64, w64.t()) + bias.to(c10::kDouble));
  expect_close(linear_product(x, weight, std::nullopt, library()), at::mm(x64, w64.t()));
  expect_close(linear_input_gradient(dy, weight, library()), at::mm(dy64, w64));
  expect_close(linear_weight_gradient(dy, x, library()), at::mm(dy64.t(), x64));
}

TEST_P(LinearProducts, RepeatBitForBit) {
  const at::Tensor x = at::randn({129, 64}).to(dtype());
  const at::Tensor weight = at::randn({48, 64}).to(dtype());
  const auto forward = [&] { return linear_product(x, weight, std::nullopt, library()); };
  EXPECT_TRUE(forward().equal(forward()));
  const auto backward = [&] { return linear_weight_gradient(x, x, library()); };
  EXPECT_TRUE(backward().equal(backward()));
}

// What a call allocates at most, beside its result.
template <typename Product>
int64_t workspace_of(const Product& product) {
  product();  // the first call compiles kernels
  tensors::reset_peak_tracked_bytes_of_thread();
  const at::Tensor result = product();
  return tensors::peak_tracked_bytes_of_thread() - result.numel() * result.element_size();
}

TEST_P(LinearProducts, ActivateTheSameWithAndWithoutTheProductKept) {
  const LinearOperands operands{at::randn({37, 64}).to(dtype()), at::randn({48, 64}).to(dtype()),
                                at::randn({48}).to(dtype())};
  const auto run = [&](KeepProduct keep) {
    return activated_linear_product(operands, kernels::Activation::kGelu, keep, library());
  };
  const ActivatedLinear kept = run(KeepProduct::kYes);
  EXPECT_TRUE(kept.product.equal(linear_product(operands.x, operands.weight, std::nullopt, library())));
  expect_close(kept.y, at::gelu(kept.product.to(c10::kDouble) + operands.bias.to(c10::kDouble)));
  const ActivatedLinear alone = run(KeepProduct::kNo);
  EXPECT_FALSE(alone.product.defined());
  EXPECT_TRUE(alone.y.equal(kept.y));
}

TEST_P(LinearProducts, AreTheSameWithWeightsPackedForSeveralRanks) {
  const LinearOperands operands{at::randn({37, 64}).to(dtype()), at::randn({48, 64}).to(dtype()),
                                at::randn({48}).to(dtype())};
  const auto& [x, weight, bias, none] = operands;
  const at::Tensor dy = at::randn({37, 48}).to(dtype());
  kernels::PackedWeights weights(1 << 20);
  const kernels::SharedPack pack{&weights, {.matrix = 1, .version = 1}};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(linear_product(x, weight, bias, library(), pack).equal(linear_product(x, weight, bias, library())));
    EXPECT_TRUE(linear_input_gradient(dy, weight, library(), pack).equal(linear_input_gradient(dy, weight, library())));
    const auto activated = [&](const kernels::SharedPack& from) {
      return activated_linear_product({x, weight, bias, from}, kernels::Activation::kGelu, KeepProduct::kNo, library());
    };
    EXPECT_TRUE(activated(pack).y.equal(activated(none).y));
  }
}

TEST_P(LinearProducts, AllocateTheWorkspaceTheySay) {
  if (library() != matmul_library()) GTEST_SKIP() << "the workspace is said for the library in use";
  tensors::track_tensor_memory();
  const at::Tensor x = at::randn({4096, 256}).to(dtype());
  const at::Tensor weight = at::randn({512, 256}).to(dtype());
  const at::Tensor dy = at::randn({4096, 512}).to(dtype());
  const bool widens = dtype() == c10::kHalf;
  const int64_t copies = widens ? widened_products_workspace(4096, 512, 256) : 0;
  const auto size = static_cast<int64_t>(widens ? sizeof(float) : x.element_size());
  const double small = 1 << 20;  // blocks of the operands; the largest copies are 4 and 8 MiB
  EXPECT_NEAR(workspace_of([&] { return linear_product(x, weight, std::nullopt, library()); }), copies, small);
  EXPECT_NEAR(workspace_of([&] { return linear_input_gradient(dy, weight, library()); }),
              copies + linear_input_gradient_workspace(4096, 256, size), small);
  EXPECT_NEAR(workspace_of([&] { return linear_weight_gradient(dy, x, library()); }),
              copies + linear_weight_gradient_workspace(4096, 512, 256, size), small);
}

TEST(LinearProduct, ThatOnednnLacksIsRefused) {
  if (!may_be_missing(c10::kBFloat16, MatmulLibrary::kOnednn)) GTEST_SKIP() << "this processor has AVX-512";
  const at::Tensor x = at::randn({37, 64}).to(c10::kBFloat16);
  try {
    linear_product(x, x, std::nullopt, MatmulLibrary::kOnednn);
    SUCCEED() << "AVX2-VNNI-2 has it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("no product of BFloat16 on"));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearProducts,
                         testing::Combine(testing::Values(c10::kFloat, c10::kBFloat16, c10::kHalf),
                                          testing::Values(MatmulLibrary::kStrake, MatmulLibrary::kOnednn,
                                                          MatmulLibrary::kAten)));

}  // namespace
}  // namespace strake::models::layers::linear_products_test
