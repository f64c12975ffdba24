#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// The three matrix products of a linear layer, each through the fastest library for the machine: oneDNN where MKL is
// slow (fp32 on AMD processors: 91 against 181 GFLOP/s a core), else what ATen takes. STRAKE_MATMUL=onednn|aten
// forces one. T = tokens, I = input width, O = output width. All operands are 2-d with one dimension contiguous, all of
// one dtype (fp32, bf16 or fp16); sums are kept in fp32.
//
// fp16 is there to run fp16 configurations as they are, not for speed: few CPUs multiply it, and libtorch's product is
// slower than fp32's by 3 (linear) to 13 (weight gradient). So operands are widened to fp32 and the result is rounded.
// bf16 is the fast type of 16 bits.
namespace strake::tensors {

// [T, O] = x[T, I] weight[O, I]^T (+ bias[O])
at::Tensor linear(const at::Tensor& x_ti, const at::Tensor& weight_oi, const std::optional<at::Tensor>& bias_o);

// [T, I] = dy[T, O] weight[O, I]
at::Tensor linear_input_gradient(const at::Tensor& dy_to, const at::Tensor& weight_oi);

// [O, I] = dy[T, O]^T x[T, I]
at::Tensor linear_weight_gradient(const at::Tensor& dy_to, const at::Tensor& x_ti);

// Bytes that the gradients allocate beside their results, but for a few hundred kilobytes: oneDNN wants the transposed
// operand as a copy, and sums bf16 products up in an fp32 copy of the result.
int64_t linear_input_gradient_workspace(int64_t tokens, int64_t inputs, int64_t element_size);
int64_t linear_weight_gradient_workspace(int64_t tokens, int64_t outputs, int64_t inputs, int64_t element_size);

// Bytes that each of the three products of fp16 operands allocates for copies in fp32; the fp32 product's workspace
// comes on top.
int64_t widened_products_workspace(int64_t tokens, int64_t outputs, int64_t inputs);

// "onednn" or "aten", for the log.
const char* matmul_backend();

}  // namespace strake::tensors
