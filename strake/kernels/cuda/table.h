#pragma once

#include <cstddef>
#include <cstdint>

#include "strake/kernels/attention.h"
#include "strake/kernels/bias_activation.h"
#include "strake/kernels/column_sum.h"
#include "strake/kernels/cross_entropy.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/embedding.h"
#include "strake/kernels/lamb_rungs.h"
#include "strake/kernels/optimizer_pass_rungs.h"
#include "strake/kernels/residual_layer_norm.h"

// What libstrake_cuda.so offers: the kernels of this module for CUDA devices, with the argument structs of the CPU's.
// strake opens the library at run time, so a build without CUDA is the same program.
//
// Pointers in arguments are to memory of the calling thread's current device. A function queues work on `stream` (a
// cudaStream_t; null: the default stream) and returns at once, but where it says otherwise. It returns 0 or an error
// number for CudaTable::error_text. Sums have a fixed order: no result depends on timing.
namespace strake::kernels::cuda {

// Raised by any change of this header or of a struct that it names.
inline constexpr uint32_t kTableVersion = 9;
inline constexpr const char* kTableSymbol = "strake_cuda_table";

// Head sizes that attention has kernels for.
inline constexpr int64_t kMaxHeadDim = 128;
inline constexpr int64_t kMostHeads = 65535;  // a grid's second dimension
// Columns of a layer norm, each thread of a block having 32.
inline constexpr int64_t kMostNormColumns = 32768;

// T is float, BFloat16 or Half.
template <typename T>
struct TypedTable {
  int (*embedding_forward)(const EmbeddingForward<T>&, void* stream);
  int (*embedding_backward)(const EmbeddingBackward<T>&, void* stream);
  int (*residual_layer_norm_forward)(const ResidualLayerNormForward<T>&, void* stream);
  int (*residual_layer_norm_backward)(const ResidualLayerNormBackward<T>&, void* stream);
  int (*bias_activation_forward)(const BiasActivationForward<T>&, void* stream);
  int (*bias_activation_backward)(const BiasActivationBackward<T>&, void* stream);
  int (*dropout)(const DropoutArgs<T>&, void* stream);
  // `tokens` = offsets[num_sequences], which is memory of the device.
  int (*attention_forward)(const AttentionForward<T>&, int64_t tokens, void* stream);
  int (*attention_backward)(const AttentionBackward<T>&, int64_t tokens, void* stream);
  int (*cross_entropy)(const CrossEntropyArgs<T>&, void* stream);
  int (*column_sum)(const ColumnSumArgs<T>&, void* stream);
  int (*from_float)(const float* from, T* to, int64_t count, void* stream);
  // partial[num_squares_chunks(count)], on the device
  int (*sum_of_squares)(const T* x, int64_t count, double* partial, void* stream);
};

// Elements [begin, end) of a window, which have one weight decay.
template <typename Factors>
struct PassPart {
  int64_t begin;
  int64_t end;
  Factors factors;
};

// Updates the elements of a window that lie in one of `count` disjoint parts. `whole` is the window, `parts` is host
// memory that is not read after the return.
template <typename Factors>
using CudaPassFunction = int (*)(const PassRun& whole, const PassPart<Factors>* parts, int64_t count, void* stream);

// Of a part of one tensor: the tensor's factors, and the place of the sums over the chunk of the window in which the
// part begins. Those of later chunks follow.
struct LambMoments {
  LambFactors tensor;
  int64_t first_sum;
};
using CudaLambMomentsFunction = int (*)(const PassRun& whole, const PassPart<LambMoments>* parts, int64_t count,
                                        LambSums* sums, void* stream);

struct CudaTable {
  uint32_t version;  // kTableVersion; the first members never move
  uint32_t bytes;    // sizeof(CudaTable)
  const char* (*error_text)(int error);

  TypedTable<float> fp32;
  TypedTable<BFloat16> bf16;
  TypedTable<Half> fp16;

  // As in OptimizerPassRung.
  CudaPassFunction<AdamFactors> adam[5];
  CudaPassFunction<AdagradFactors> adagrad[4];
  CudaPassFunction<LionFactors> lion[4];
  CudaPassFunction<SgdFactors> sgd[4];
  CudaLambMomentsFunction lamb_moments[4];  // `sums` is memory of the device
  CudaPassFunction<LambFactors> lamb_apply[4];

  // Waits. *first = place of the first id outside [0, rows), -1 if there is none; *id = that id.
  int (*first_outside)(const int32_t* ids, int64_t count, int64_t rows, int64_t* first, int32_t* id, void* stream);

  int (*set_device)(int device);  // of the calling thread
  int (*allocate)(void** memory, size_t bytes);
  int (*release)(void* memory);
  int (*to_device)(void* to, const void* from_host, size_t bytes, void* stream);  // waits
  int (*to_host)(void* to_host, const void* from, size_t bytes, void* stream);    // waits

  // For communication beside the default stream. Events are for order only.
  int (*make_stream)(void** stream);  // that does not wait for the default stream
  int (*destroy_stream)(void* stream);
  int (*wait_for_stream)(void* waiting, void* awaited);  // work queued on `waiting` from now on
  int (*is_done)(void* stream, int* done);               // 1 if all work of the stream is done
};

}  // namespace strake::kernels::cuda
