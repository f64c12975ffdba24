#include "strake/kernels/cuda/table.h"

#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

template <typename T>
constexpr TypedTable<T> typed_table() {
  return {.embedding_forward = &embedding_forward<T>,
          .embedding_backward = &embedding_backward<T>,
          .residual_layer_norm_forward = &residual_layer_norm_forward<T>,
          .residual_layer_norm_backward = &residual_layer_norm_backward<T>,
          .bias_activation_forward = &bias_activation_forward<T>,
          .bias_activation_backward = &bias_activation_backward<T>,
          .dropout = &dropout<T>,
          .attention_forward = &attention_forward<T>,
          .attention_backward = &attention_backward<T>,
          .cross_entropy = &cross_entropy<T>,
          .column_sum = &column_sum<T>,
          .from_float = &convert_from_float<T>,
          .sum_of_squares = &sum_of_squares<T>};
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

int allocate(void** memory, size_t bytes) { return cudaMalloc(memory, bytes > 0 ? bytes : 1); }
int release(void* memory) { return cudaFree(memory); }

int to_device(void* to, const void* from_host, size_t bytes, void* stream) {
  const cudaError_t error = cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, stream_of(stream));
  return error != cudaSuccess ? error : cudaStreamSynchronize(stream_of(stream));
}
int to_host(void* to_host, const void* from, size_t bytes, void* stream) {
  const cudaError_t error = cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream));
  return error != cudaSuccess ? error : cudaStreamSynchronize(stream_of(stream));
}

int is_done(void* stream, int* done) {
  const cudaError_t state = cudaStreamQuery(stream_of(stream));
  *done = state == cudaSuccess ? 1 : 0;
  if (state != cudaErrorNotReady) return state;
  cudaGetLastError();  // or others take it for one of their launches
  return cudaSuccess;
}

// Workspaces of one step are used again in the next, instead of going back to the driver at every wait.
int set_device(int device) {
  cudaMemPool_t pool = nullptr;
  uint64_t keep_everything = UINT64_MAX;
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaDeviceGetDefaultMemPool(&pool, device);
  if (error == cudaSuccess) error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_everything);
  return error;
}

int make_stream(void** stream) {
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  *stream = made;
  return error;
}
int destroy_stream(void* stream) { return cudaStreamDestroy(stream_of(stream)); }

int wait_for_stream(void* waiting, void* awaited) {
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error != cudaSuccess) return error;
  error = cudaEventRecord(event, stream_of(awaited));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_of(waiting), event, 0);
  cudaEventDestroy(event);  // freed when it has come
  return error;
}

constexpr CudaTable kTable{
    .version = kTableVersion,
    .bytes = sizeof(CudaTable),
    .error_text = &error_text,
    .fp32 = typed_table<float>(),
    .bf16 = typed_table<BFloat16>(),
    .fp16 = typed_table<Half>(),
    .adam = {&adam<float, float, float>, &adam<BFloat16, float, float>, &adam<Half, float, float>,
             &adam<BFloat16, BFloat16, BFloat16>, &adam<Half, Half, float>},
    .adagrad = {&adagrad<float, float>, &adagrad<BFloat16, float>, &adagrad<Half, float>, &adagrad<BFloat16, BFloat16>},
    .lion = {&lion<float, float>, &lion<BFloat16, float>, &lion<Half, float>, &lion<BFloat16, BFloat16>},
    .sgd = {&sgd<float, float>, &sgd<BFloat16, float>, &sgd<Half, float>, &sgd<BFloat16, BFloat16>},
    .lamb_moments = {&lamb_moments<float, float>, &lamb_moments<BFloat16, float>, &lamb_moments<Half, float>,
                     &lamb_moments<BFloat16, BFloat16>},
    .lamb_apply = {&lamb_apply<float, float>, &lamb_apply<BFloat16, float>, &lamb_apply<Half, float>,
                   &lamb_apply<BFloat16, BFloat16>},
    .first_outside = &first_outside,
    .set_device = &set_device,
    .allocate = &allocate,
    .release = &release,
    .to_device = &to_device,
    .to_host = &to_host,
    .make_stream = &make_stream,
    .destroy_stream = &destroy_stream,
    .wait_for_stream = &wait_for_stream,
    .is_done = &is_done,
};

}  // namespace
}  // namespace strake::kernels::cuda

// The one symbol of the library.
extern "C" __attribute__((visibility("default"))) const strake::kernels::cuda::CudaTable* strake_cuda_table() {
  return &strake::kernels::cuda::kTable;
}
