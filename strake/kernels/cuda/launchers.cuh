#pragma once

#include "strake/kernels/cuda/table.h"

// The functions of TypedTable and CudaTable, by the file that defines them. Instantiated there for the types of the
// table.
namespace strake::kernels::cuda {

// embedding.cu
template <typename T>
int embedding_forward(const EmbeddingForward<T>& args, void* stream);
template <typename T>
int embedding_backward(const EmbeddingBackward<T>& args, void* stream);
int first_outside(const int32_t* ids, int64_t count, int64_t rows, int64_t* first, int32_t* id, void* stream);

// residual_layer_norm_forward.cu, residual_layer_norm_backward.cu
template <typename T>
int residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, void* stream);
template <typename T>
int residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, void* stream);

// bias_activation.cu
template <typename T>
int bias_activation_forward(const BiasActivationForward<T>& args, void* stream);
template <typename T>
int bias_activation_backward(const BiasActivationBackward<T>& args, void* stream);

// elementwise.cu
template <typename T>
int dropout(const DropoutArgs<T>& args, void* stream);
template <typename T>
int convert_from_float(const float* from, T* to, int64_t count, void* stream);

// sums.cu
template <typename T>
int column_sum(const ColumnSumArgs<T>& args, void* stream);
template <typename T>
int cross_entropy(const CrossEntropyArgs<T>& args, void* stream);
template <typename T>
int sum_of_squares(const T* x, int64_t count, double* partial, void* stream);
struct JoinedSums {
  int count;      // 1 or 2
  float* out[2];  // [width] each
};
// out[s][c] = partials[s][0][c] + partials[s][1][c] + ..., added to 0 in this order; partials is [count, chunks, width]
int join_partials(const float* partials, int64_t chunks, int64_t width, const JoinedSums& to, void* stream);

// attention_forward.cu, attention_backward.cu
template <typename T>
int attention_forward(const AttentionForward<T>& args, int64_t tokens, void* stream);
template <typename T>
int attention_backward(const AttentionBackward<T>& args, int64_t tokens, void* stream);

// optimizer_pass.cu: gradients of type G, parameters of M, states of M or T
template <typename G, typename M, typename T>
int adam(const PassRun& whole, const PassPart<AdamFactors>* parts, int64_t count, void* stream);
template <typename G, typename M>
int adagrad(const PassRun& whole, const PassPart<AdagradFactors>* parts, int64_t count, void* stream);
template <typename G, typename M>
int lion(const PassRun& whole, const PassPart<LionFactors>* parts, int64_t count, void* stream);
template <typename G, typename M>
int sgd(const PassRun& whole, const PassPart<SgdFactors>* parts, int64_t count, void* stream);

// lamb.cu: gradients of type G, parameters and states of M
template <typename G, typename M>
int lamb_moments(const PassRun& whole, const PassPart<LambMoments>* parts, int64_t count, LambSums* sums, void* stream);
template <typename G, typename M>
int lamb_apply(const PassRun& whole, const PassPart<LambFactors>* parts, int64_t count, void* stream);

}  // namespace strake::kernels::cuda
