#include "strake/tensors/linear_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "strake/tensors/tracked_memory.h"

namespace strake::tensors {
namespace {

class LinearProducts : public testing::TestWithParam<c10::ScalarType> {
 protected:
  // Rounding of sums of 64 products in fp32, and of the result to bf16 (8 bits) or fp16 (11 bits).
  double tolerance() const { return GetParam() == c10::kFloat ? 1e-5 : GetParam() == c10::kHalf ? 1e-3 : 1e-2; }
  void expect_close(const at::Tensor& actual, const at::Tensor& expected) const {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_EQ(actual.scalar_type(), GetParam());
    const double error = (actual.to(c10::kDouble) - expected).abs().max().item<double>();
    EXPECT_LE(error, tolerance() * expected.abs().max().item<double>());
  }
};

TEST_P(LinearProducts, AgreeWithDoublePrecision) {
  const at::Tensor x = at::randn({37, 64}).to(GetParam());
  const at::Tensor weight = at::randn({48, 64}).to(GetParam());
  const at::Tensor bias = at::randn({48}).to(GetParam());
  const at::Tensor dy = at::randn({37, 48}).to(GetParam());
  const at::Tensor x64 = x.to(c10::kDouble);
  const at::Tensor w64 = weight.to(c10::kDouble);
  const at::Tensor dy64 = dy.to(c10::kDouble);
  expect_close(linear(x, weight, bias), at::mm(x64, w64.t()) + bias.to(c10::kDouble));
  expect_close(linear(x, weight, std::nullopt), at::mm(x64, w64.t()));
  expect_close(linear_input_gradient(dy, weight), at::mm(dy64, w64));
  expect_close(linear_weight_gradient(dy, x), at::mm(dy64.t(), x64));
}

TEST_P(LinearProducts, RepeatBitForBit) {
  const at::Tensor x = at::randn({129, 64}).to(GetParam());
  const at::Tensor weight = at::randn({48, 64}).to(GetParam());
  EXPECT_TRUE(linear(x, weight, std::nullopt).equal(linear(x, weight, std::nullopt)));
  EXPECT_TRUE(linear_weight_gradient(x, x).equal(linear_weight_gradient(x, x)));
}

// What a call allocates at most, beside its result.
template <typename Product>
int64_t workspace_of(const Product& product) {
  product();  // the first call compiles kernels
  reset_peak_tracked_bytes_of_thread();
  const at::Tensor result = product();
  return peak_tracked_bytes_of_thread() - result.numel() * result.element_size();
}

TEST_P(LinearProducts, AllocateTheWorkspaceTheySay) {
  track_tensor_memory();
  const at::Tensor x = at::randn({4096, 256}).to(GetParam());
  const at::Tensor weight = at::randn({512, 256}).to(GetParam());
  const at::Tensor dy = at::randn({4096, 512}).to(GetParam());
  const bool widens = GetParam() == c10::kHalf;
  const int64_t copies = widens ? widened_products_workspace(4096, 512, 256) : 0;
  const auto size = static_cast<int64_t>(widens ? sizeof(float) : x.element_size());
  const double small = 1 << 20;  // blocks of the operands; the largest copies are 4 and 8 MiB
  EXPECT_NEAR(workspace_of([&] { return linear(x, weight, std::nullopt); }), copies, small);
  EXPECT_NEAR(workspace_of([&] { return linear_input_gradient(dy, weight); }),
              copies + linear_input_gradient_workspace(4096, 256, size), small);
  EXPECT_NEAR(workspace_of([&] { return linear_weight_gradient(dy, x); }),
              copies + linear_weight_gradient_workspace(4096, 512, 256, size), small);
}

INSTANTIATE_TEST_SUITE_P(Types, LinearProducts, testing::Values(c10::kFloat, c10::kBFloat16, c10::kHalf));

}  // namespace
}  // namespace strake::tensors
