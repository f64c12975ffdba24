#pragma once

#include <variant>

#include "strake/core/cpu_features.h"
#include "strake/kernels/cuda/table.h"
#include "strake/kernels/flat_window.h"
#include "strake/kernels/global_norm.h"
#include "strake/kernels/lamb.h"
#include "strake/kernels/optimizer_pass.h"

// The kernels for CUDA devices: each CPU kernel again with the same arguments and the same meaning, but for where the
// memory is. All pointers, also those of spans, are to memory of the calling thread's current device, and work is
// queued on a stream. Errors are those of the CPU's kernels, and with CUDA's words kUsage for memory that the GPU does
// not have, else kInternal.
namespace strake::kernels {

struct OnCuda {
  const cuda::CudaTable* table = nullptr;  // cuda::library(), or the emulation in tests
  void* stream = nullptr;                  // cudaStream_t; null: the default stream
};

// Error (kConfig) for more heads, or larger ones, than attention has kernels for.
void require_attention_heads(int64_t num_heads, int64_t head_dim);

// Where a kernel runs: the highest instruction set, or a device.
using Place = std::variant<Isa, OnCuda>;

// T is float, BFloat16 or Half in all of these.

// Waits for the device, where ids are checked, unless they are given on the host as well.
template <typename T>
void embedding_forward(const EmbeddingForward<T>& args, const OnCuda& place);
// Ids are those of the forward pass: they are not checked again. Runs of tokens with one row are summed in chunks of 64
// tokens, so that bits differ from the CPU's.
template <typename T>
void embedding_backward(const EmbeddingBackward<T>& args, const OnCuda& place);

template <typename T>
void residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, const OnCuda& place);
template <typename T>
void residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, const OnCuda& place);

template <typename T>
void bias_activation_forward(const BiasActivationForward<T>& args, const OnCuda& place);
template <typename T>
void bias_activation_backward(const BiasActivationBackward<T>& args, const OnCuda& place);

template <typename T>
void dropout(const DropoutArgs<T>& args, const OnCuda& place);

// Of 16-bit T, probabilities and their gradients are rounded to T once, as tensor cores take them; all else is fp32.
// Errors also as of require_attention_heads. AttentionShape::num_tokens is needed.
template <typename T>
void attention_forward(const AttentionForward<T>& args, const OnCuda& place);
template <typename T>
void attention_backward(const AttentionBackward<T>& args, const OnCuda& place);

// Waits for the device, where targets are checked, unless they are given on the host as well.
template <typename T>
void cross_entropy(const CrossEntropyArgs<T>& args, const OnCuda& place);

template <typename T>
void column_sum(const ColumnSumArgs<T>& args, const OnCuda& place);

template <typename T>
void convert(const float* from, T* to, int64_t count, const OnCuda& place);

template <typename T>
void sum_of_squares(const T* x, int64_t count, std::span<double> partial, const OnCuda& place);

// The CPU's bits. Segments are in host memory.
void adam(const FlatWindow& window, const UpdateStep& step, const Adam& rule, const OnCuda& place);
void adagrad(const FlatWindow& window, const UpdateStep& step, const Adagrad& rule, const OnCuda& place);
void lion(const FlatWindow& window, const UpdateStep& step, const Lion& rule, const OnCuda& place);
void sgd(const FlatWindow& window, const UpdateStep& step, const Sgd& rule, const OnCuda& place);

// Segments and coefficients are in host memory. The CPU's moments and, given the same coefficients, its parameters;
// sums are of other roundings in double.
void lamb_moments(const FlatWindow& window, const UpdateStep& step, const Lamb& rule, std::span<LambSums> sums,
                  const OnCuda& place);
void lamb_apply(const FlatWindow& window, const UpdateStep& step, const Lamb& rule,
                std::span<const double> coefficients, const OnCuda& place);

}  // namespace strake::kernels
