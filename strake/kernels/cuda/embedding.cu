#include <climits>

#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

template <typename T>
__device__ float entry(const EmbeddingTable<const T>& table, int64_t token, int64_t columns, int64_t c) {
  return table.table == nullptr ? 0.0F : wide(table.table[int64_t{table.ids[token]} * columns + c]);
}

template <typename T>
__global__ void forward_kernel(EmbeddingForward<T> args) {
  const int64_t token = blockIdx.x;
  for (int64_t c = threadIdx.x; c < args.columns; c += kThreads) {
    args.out[token * args.stride + c] =
        narrow<T>(entry(args.word, token, args.columns, c) + entry(args.position, token, args.columns, c) +
                  entry(args.type, token, args.columns, c));
  }
}

__global__ void set_int_kernel(int* value, int to) {
  if (threadIdx.x == 0) *value = to;
}

__global__ void outside_kernel(const int32_t* ids, int64_t count, int64_t rows, int* first) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count && (ids[i] < 0 || ids[i] >= rows)) atomicMin(first, static_cast<int>(i));
}

// Tokens are sorted by id, those of one id in their order. The place of each is the number of those before it, counted
// by blocks that have a part of all tokens each. Quadratic, but in integers, and spread over the whole device.
constexpr int64_t kCountedTokens = 1024;  // by a block

__global__ void count_before_kernel(const int32_t* ids, int64_t tokens, int* places) {
  __shared__ int32_t tile[kThreads];
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int32_t own = token < tokens ? ids[token] : 0;
  const int64_t first = int64_t{blockIdx.y} * kCountedTokens;
  const int64_t end = first + kCountedTokens < tokens ? first + kCountedTokens : tokens;
  int count = 0;
  for (int64_t begin = first; begin < end; begin += kThreads) {
    if (begin + threadIdx.x < end) tile[threadIdx.x] = ids[begin + threadIdx.x];
    __syncthreads();
    const auto size = static_cast<int>(end - begin < kThreads ? end - begin : kThreads);
    // Equal ids come before only if they are an earlier token's.
    const auto earlier = token < begin ? 0 : token - begin < size ? static_cast<int>(token - begin) : size;
    for (int i = 0; i < earlier; ++i) count += tile[i] <= own ? 1 : 0;
    for (int i = earlier; i < size; ++i) count += tile[i] < own ? 1 : 0;
    __syncthreads();
  }
  if (token < tokens) atomicAdd(places + token, count);
}

__global__ void order_kernel(const int* places, int64_t tokens, int32_t* order) {
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token < tokens) order[places[token]] = static_cast<int32_t>(token);
}

constexpr int64_t kChunk = 64;  // sorted tokens

// The sorted tokens of a chunk; runs of one id may go over its borders.
struct SortedTokens {
  const int32_t* ids;
  const int32_t* order;
  int64_t tokens;
  int64_t begin;
  int64_t end;

  __device__ int32_t id(int64_t place) const { return ids[order[place]]; }
  __device__ bool ends_at(int64_t place) const { return place + 1 == tokens || id(place + 1) != id(place); }
  __device__ bool comes_from_before() const { return begin > 0 && id(begin - 1) == id(begin); }
};
__device__ SortedTokens sorted_tokens(const int32_t* ids, const int32_t* order, int64_t tokens, int64_t number) {
  const int64_t end = (number + 1) * kChunk;
  return {ids, order, tokens, number * kChunk, end < tokens ? end : tokens};
}

// Adds runs that lie within a chunk to their rows. Sums of those that go over a border are left in
// partials[chunk][0] (came from before) and [1] (begins here, goes on). A thread has a column.
template <typename T>
__global__ void add_runs_kernel(EmbeddingBackward<T> args, const int32_t* order, float* partials) {
  const int64_t c = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x;
  if (c >= args.columns) return;
  const SortedTokens chunk = sorted_tokens(args.table.ids, order, args.tokens, blockIdx.x);
  bool from_before = chunk.comes_from_before();
  float sum = 0;
  for (int64_t place = chunk.begin; place < chunk.end; ++place) {
    sum += wide(args.dout[int64_t{order[place]} * args.columns + c]);
    const bool ends = chunk.ends_at(place);
    if (!ends && place + 1 < chunk.end) continue;
    if (ends && !from_before) {
      args.table.table[int64_t{chunk.id(place)} * args.columns + c] += sum;
    } else {
      partials[(2 * int64_t{blockIdx.x} + (from_before ? 0 : 1)) * args.columns + c] = sum;
    }
    from_before = false;
    sum = 0;
  }
}

// Adds up the run that begins in a chunk and goes on behind it.
__global__ void join_runs_kernel(EmbeddingTable<float> table, const int32_t* order, const float* partials,
                                 int64_t tokens, int64_t columns) {
  const int64_t c = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x;
  if (c >= columns) return;
  const SortedTokens chunk = sorted_tokens(table.ids, order, tokens, blockIdx.x);
  const int64_t last = chunk.end - 1;
  const int32_t id = chunk.id(last);
  const bool begins_here = !chunk.comes_from_before() || chunk.id(chunk.begin) != id;
  if (chunk.ends_at(last) || !begins_here) return;
  // The last chunk that begins with the id: ids are sorted.
  int64_t low = blockIdx.x + 1;
  for (int64_t high = gridDim.x - 1; low < high;) {
    const int64_t middle = (low + high + 1) / 2;
    if (chunk.id(middle * kChunk) == id) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  float sum = partials[(2 * int64_t{blockIdx.x} + 1) * columns + c];
#pragma unroll 16
  for (int64_t number = blockIdx.x + 1; number <= low; ++number) sum += partials[2 * number * columns + c];
  table.table[int64_t{id} * columns + c] += sum;
}

}  // namespace

template <typename T>
int embedding_forward(const EmbeddingForward<T>& args, void* stream) {
  return launch(&forward_kernel<T>, {args.tokens}, kThreads, stream, args);
}

template <typename T>
int embedding_backward(const EmbeddingBackward<T>& args, void* stream) {
  const Workspace<int32_t> places_and_order(2 * args.tokens, stream);
  int32_t* const places = places_and_order.data();
  int32_t* const order = places + args.tokens;
  const int64_t chunks = ceil_div(args.tokens, kChunk);
  const Workspace<float> partials(2 * chunks * args.columns, stream);
  int error = places_and_order.error() != 0 ? places_and_order.error() : partials.error();
  if (error != 0 || args.tokens == 0) return error;
  const int64_t blocks = ceil_div(args.tokens, kThreads);
  error =
      cudaMemsetAsync(places, 0, static_cast<size_t>(args.tokens) * sizeof(*places), static_cast<cudaStream_t>(stream));
  if (error == 0) {
    error = launch(&count_before_kernel, {blocks, ceil_div(args.tokens, kCountedTokens)}, kThreads, stream,
                   args.table.ids, args.tokens, places);
  }
  if (error == 0) error = launch(&order_kernel, {blocks}, kThreads, stream, places, args.tokens, order);
  const Grid grid{chunks, ceil_div(args.columns, kColumnThreads)};
  if (error == 0) {
    error = launch(&add_runs_kernel<T>, grid, kColumnThreads, stream, args, order, partials.data());
  }
  if (error != 0) return error;
  return launch(&join_runs_kernel, grid, kColumnThreads, stream, args.table, order, partials.data(), args.tokens,
                args.columns);
}

int first_outside(const int32_t* ids, int64_t count, int64_t rows, int64_t* first, int32_t* id, void* stream) {
  const Workspace<int> place(1, stream);
  if (place.error() != 0) return place.error();
  int found = INT_MAX;
  int error = launch(&set_int_kernel, {1}, kWarp, stream, place.data(), INT_MAX);
  if (error == 0) {
    error = launch(&outside_kernel, {ceil_div(count, kThreads)}, kThreads, stream, ids, count, rows, place.data());
  }
  const auto on = static_cast<cudaStream_t>(stream);
  if (error == 0) error = cudaMemcpyAsync(&found, place.data(), sizeof(found), cudaMemcpyDeviceToHost, on);
  if (error == 0) error = cudaStreamSynchronize(on);
  if (error != 0) return error;
  *first = found == INT_MAX ? -1 : found;
  if (*first < 0) return 0;
  error = cudaMemcpyAsync(id, ids + *first, sizeof(*id), cudaMemcpyDeviceToHost, on);
  return error != 0 ? error : cudaStreamSynchronize(on);
}

#define STRAKE_INSTANTIATE(T)                                        \
  template int embedding_forward(const EmbeddingForward<T>&, void*); \
  template int embedding_backward(const EmbeddingBackward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
