#include "strake/models/layers/vocabulary_products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <optional>

namespace strake::models::layers {
namespace {

constexpr int64_t kMultiple = 64;

}  // namespace

VocabularyProducts::VocabularyProducts(const at::Tensor& weight, MatmulLibrary library, Sizes sizes)
    : weight_(weight),
      library_(library),
      sizes_(sizes),
      whole_(weight.size(0) / kMultiple * kMultiple),
      stride_(rounded(weight.size(0))) {}

int64_t VocabularyProducts::rounded(int64_t words) { return (words + kMultiple - 1) / kMultiple * kMultiple; }

at::Tensor VocabularyProducts::logits(const at::Tensor& states) const {
  if (sizes_ == Sizes::kAsTheyAre) return linear_product(states, weight_, std::nullopt, library_);
  const int64_t words = weight_.size(0), rest = words - whole_;
  const at::Tensor logits = at::empty({states.size(0), stride_}, states.options()).narrow(1, 0, words);
  at::Tensor first = logits.narrow(1, 0, whole_), last = logits.narrow(1, whole_, rest);
  if (whole_ > 0) at::mm_out(first, states, weight_.narrow(0, 0, whole_).t());
  if (rest > 0) at::mm_out(last, states, weight_.narrow(0, whole_, rest).t());
  return logits;
}

at::Tensor VocabularyProducts::state_gradient(const at::Tensor& dlogits) const {
  if (sizes_ == Sizes::kAsTheyAre) return linear_input_gradient(dlogits, weight_, library_);
  const int64_t rest = weight_.size(0) - whole_;
  const at::Tensor last = dlogits.narrow(1, whole_, rest), last_words = weight_.narrow(0, whole_, rest);
  if (whole_ == 0) return at::mm(last, last_words);
  at::Tensor gradient = at::mm(dlogits.narrow(1, 0, whole_), weight_.narrow(0, 0, whole_));
  return rest == 0 ? gradient : gradient.addmm_(last, last_words);
}

void VocabularyProducts::add_weight_gradient(const at::Tensor& dlogits, const at::Tensor& states, Parts parts,
                                             at::Tensor& sum) const {
  if (parts == Parts::kSeveral && !states.is_cuda() && can_multiply_in_place(states.scalar_type(), library_)) {
    const auto store = sum.defined() ? kernels::Store::kAdd : kernels::Store::kOverwrite;
    if (!sum.defined()) sum = at::empty({weight_.size(0), weight_.size(1)}, states.options().dtype(at::kFloat));
    return linear_weight_gradient_into(dlogits, states, sum, store);
  }
  // What is in the gap makes rows of its own, which are left out.
  const bool has_gap = sizes_ == Sizes::kRounded;
  const at::Tensor rows = has_gap ? dlogits.as_strided({dlogits.size(0), stride_}, {stride_, 1}) : dlogits;
  if (sum.defined() && rows.is_cuda()) {
    at::Tensor with_gap = sum.as_strided({rows.size(1), states.size(1)}, {states.size(1), 1});
    if (rows.element_size() < static_cast<int64_t>(sizeof(float))) {
      at::addmm_out(with_gap, with_gap, rows.t(), states, at::kFloat);
    } else {
      with_gap.addmm_(rows.t(), states);
    }
    return;
  }
  const at::Tensor part = linear_weight_gradient(rows, states, library_).narrow(0, 0, weight_.size(0));
  sum = sum.defined() ? sum.to(at::kFloat).add_(part) : part;
}

}  // namespace strake::models::layers
