#pragma once

#include <ATen/core/Tensor.h>

#include "strake/models/layers/linear_products.h"

namespace strake::models::layers {

// Matrix products of a language head, whose weight [V, H] has a row for each word.
//
// cuBLAS has fast kernels only for rows and sizes in multiples of 8, which an odd vocabulary gives it neither of. On
// GPUs rows of logits therefore have a gap behind them, and the last words are multiplied on their own, or with the
// gap.
class VocabularyProducts {
 public:
  enum class Sizes { kAsTheyAre, kRounded };

  VocabularyProducts(const at::Tensor& weight, MatmulLibrary library)
      : VocabularyProducts(weight, library, weight.is_cuda() ? Sizes::kRounded : Sizes::kAsTheyAre) {}
  VocabularyProducts(const at::Tensor& weight, MatmulLibrary library, Sizes sizes);

  // Of a row of logits, with the gap.
  static int64_t rounded(int64_t words);

  // [N, V] of states [N, H]; rows are stride(0) apart.
  at::Tensor logits(const at::Tensor& states) const;
  // [N, H] of what logits() made, its numbers replaced by gradients.
  at::Tensor state_gradient(const at::Tensor& dlogits) const;
  // Adds to [V, H], which is undefined before the first call. The sum of several is fp32; one alone, on processors, is
  // as the states are.
  enum class Parts { kOne, kSeveral };
  void add_weight_gradient(const at::Tensor& dlogits, const at::Tensor& states, Parts parts, at::Tensor& sum) const;

 private:
  at::Tensor weight_;
  MatmulLibrary library_;
  Sizes sizes_;
  int64_t whole_;   // words in whole multiples
  int64_t stride_;  // of rows of logits
};

}  // namespace strake::models::layers
