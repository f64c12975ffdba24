#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "strake/kernels/bias_activation.h"
#include "strake/kernels/packed_weights.h"
#include "strake/kernels/store.h"

// The three matrix products of a linear layer. T = tokens, I = input width, O = output width. All operands are 2-d with
// one dimension contiguous, all of one dtype (fp32, bf16 or fp16); sums are kept in fp32. On a processor, fp16 is
// widened to fp32, multiplied and rounded: without AVX512-FP16 it is multiplied far slower still.
namespace strake::models::layers {

enum class MatmulLibrary {
  kStrake,  // strake/kernels/matmul.h: a row's result does not depend on the other rows
  kOnednn,  // through libtorch
  kAten     // what ATen takes: MKL for fp32, oneDNN for bf16
};

// What suits this machine (choose_library says why), or what STRAKE_MATMUL=strake|onednn|aten says.
MatmulLibrary matmul_library();
// The same for a product with this operand; of GPUs' tensors, ATen's, which has tensor cores for fp16 too.
MatmulLibrary matmul_library_for(const at::Tensor& operand);
const char* to_string(MatmulLibrary library);  // as in STRAKE_MATMUL

// [T, O] = x[T, I] weight[O, I]^T (+ bias[O]). `pack`, here and below: where our own kernels take the packed weight
// from.
at::Tensor linear_product(const at::Tensor& x_ti, const at::Tensor& weight_oi, const std::optional<at::Tensor>& bias_o,
                          MatmulLibrary library, const kernels::SharedPack& pack = {});

// [T, I] = dy[T, O] weight[O, I]
at::Tensor linear_input_gradient(const at::Tensor& dy_to, const at::Tensor& weight_oi, MatmulLibrary library,
                                 const kernels::SharedPack& pack = {});

// [O, I] = dy[T, O]^T x[T, I]
at::Tensor linear_weight_gradient(const at::Tensor& dy_to, const at::Tensor& x_ti, MatmulLibrary library);

// The same product, in fp32, over what is in `sum` or added to it once it is complete. Only if can_multiply_in_place,
// or on GPUs.
void linear_weight_gradient_into(const at::Tensor& dy_to, const at::Tensor& x_ti, const at::Tensor& sum_oi,
                                 kernels::Store store);
bool can_multiply_in_place(c10::ScalarType dtype, MatmulLibrary library);

struct LinearOperands {
  at::Tensor x;       // [T, I]
  at::Tensor weight;  // [O, I]
  at::Tensor bias;    // [O]
  kernels::SharedPack pack = {};
};
struct ActivatedLinear {
  at::Tensor product;  // [T, O] = x weight^T; undefined unless kept
  at::Tensor y;        // [T, O] = activation(product + bias)
};
enum class KeepProduct { kNo, kYes };

// The same bits with and without the product.
ActivatedLinear activated_linear_product(const LinearOperands& operands, kernels::Activation activation,
                                         KeepProduct keep, MatmulLibrary library);

// Bytes of tensors that the gradients allocate beside their results, but for a few hundred kilobytes: oneDNN wants the
// transposed operand as a copy, and sums bf16 products up in an fp32 copy of the result. Our own kernels' packed
// operands are no tensors: see matmul.h.
int64_t linear_input_gradient_workspace(int64_t tokens, int64_t inputs, int64_t element_size);
int64_t linear_weight_gradient_workspace(int64_t tokens, int64_t outputs, int64_t inputs, int64_t element_size);

// Bytes of the fp32 operands and result of a product in fp16, which has the workspace of fp32 besides.
int64_t widened_products_workspace(int64_t tokens, int64_t outputs, int64_t inputs);

}  // namespace strake::models::layers
