#include "strake/models/layers/vocabulary_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <limits>

#include "strake/models/test_model.h"

namespace strake::models::layers::vocabulary_products_test {
namespace {

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// As on GPUs; the gap is poisoned.
TEST(VocabularyProducts, OfRoundedSizesAreTheProducts) {
  for (const int64_t words : {7, 64, 75, 200}) {
    const at::Tensor weight = wave({words, 6}, 1), states = wave({5, 6}, 2), gradient = wave({5, words}, 3);
    const VocabularyProducts products(weight, MatmulLibrary::kAten, VocabularyProducts::Sizes::kRounded);
    at::Tensor logits = products.logits(states);
    // fp32 sums of 6 to 200 numbers up to 1 in another order.
    EXPECT_LT(distance(logits, at::mm(states, weight.t())), 1e-5);
    EXPECT_EQ(logits.stride(0) % 64, 0);
    logits.as_strided({5, logits.stride(0)}, {logits.stride(0), 1})
        .narrow(1, words, logits.stride(0) - words)
        .fill_(std::numeric_limits<float>::quiet_NaN());
    logits.copy_(gradient);
    EXPECT_LT(distance(products.state_gradient(logits), at::mm(gradient, weight)), 1e-4);
    at::Tensor sum;
    for (const int chunks : {1, 2}) {
      products.add_weight_gradient(logits, states, VocabularyProducts::Parts::kSeveral, sum);
      EXPECT_LT(distance(sum, at::mm(gradient.t(), states) * chunks), 1e-5);
    }
  }
}

// Not rounded to bf16 before they are added.
TEST(VocabularyProducts, GradientsOfSeveralPartsAreSummedInFp32) {
  using Parts = VocabularyProducts::Parts;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor weight = wave({75, 6}, 1).to(dtype);
    const at::Tensor states = wave({70, 6}, 2).to(dtype), gradient = wave({70, 75}, 3).to(dtype);
    const VocabularyProducts products(weight, MatmulLibrary::kStrake);
    at::Tensor sum, one;
    for (const int64_t first : {0, 35}) {
      products.add_weight_gradient(gradient.narrow(0, first, 35), states.narrow(0, first, 35), Parts::kSeveral, sum);
    }
    products.add_weight_gradient(gradient, states, Parts::kOne, one);
    EXPECT_EQ(sum.scalar_type(), at::kFloat);
    EXPECT_EQ(one.scalar_type(), dtype);
    // fp32 sums of 70 numbers up to 1 in another order.
    EXPECT_LT(distance(sum, at::mm(gradient.to(at::kFloat).t(), states.to(at::kFloat))), 1e-5);
  }
}

}  // namespace
}  // namespace strake::models::layers::vocabulary_products_test
