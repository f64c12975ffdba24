#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/half.h"

// Self-attention on packed sequences: tokens [offsets[s], offsets[s + 1]) attend to each other and to nobody else.
//   out = dropout(softmax(scale q k^T)) v     per sequence and head
// One thread computes a head of a sequence from begin to end, so results depend neither on the number of threads nor on
// the neighbours in the batch. No L x L matrix is stored: the backward pass computes the probabilities again from the
// log-sum-exp (Dao et al., "FlashAttention", NeurIPS 2022), over blocks of queries.
namespace strake::kernels {

enum class AttentionMask { kFull, kCausal };

struct AttentionShape {
  const int32_t* offsets = nullptr;  // [num_sequences + 1], ascending, offsets[0] = 0
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;  // offsets[num_sequences]; read only where offsets are memory of a device
  int64_t num_heads = 0;
  int64_t head_dim = 0;  // any; multiples of 16 waste no lanes
  float scale = 1;       // above 0
  AttentionMask mask = AttentionMask::kFull;
  Dropout dropout = {};  // of the probabilities: element = head * 2^20 + key position, token = query
  TokenIndex index = {};
  // GPUs only: which probabilities are kept, as a training forward pass writes it and the backward pass needs it if
  // there is dropout. uint8 [num_heads, num_tokens, kept_bytes], 8-byte aligned, a bit for every key of the sequence in
  // the kernels' own order.
  uint8_t* kept = nullptr;
  int64_t kept_bytes = 0;  // kept_bytes_of() of the longest sequence
};

constexpr int64_t kept_bytes_of(int64_t length) { return (length + 63) / 64 * 8; }

// Keys of one head that have a counter of their own when dropout is on.
inline constexpr int64_t kMaxAttentionKeysWithDropout = int64_t{1} << 20;

// Head h of token t is at pointer + t * stride + h * head_dim, so that q, k and v may be slices of one [tokens, 3 H]
// buffer. Strides are in elements.
template <typename T>
struct AttentionForward {
  AttentionShape shape = {};
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  int64_t qkv_stride = 0;
  T* out = nullptr;
  int64_t out_stride = 0;
  float* lse = nullptr;  // [tokens, num_heads]: log of the sum of exp(scores), for the backward pass
};

template <typename T>
struct AttentionBackward {
  AttentionShape shape = {};  // the same as in the forward pass
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  int64_t qkv_stride = 0;
  const T* out = nullptr;
  const T* dout = nullptr;
  int64_t out_stride = 0;  // of out and dout
  const float* lse = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  int64_t grad_stride = 0;  // of dq, dk and dv
};

// T is float, BFloat16 or Half; arithmetic is fp32. With AMX the forward pass of BFloat16 multiplies bf16, adding up in
// fp32: probabilities are rounded before they are multiplied by values. kInternal if the shape makes no sense.
template <typename T>
void attention_forward(const AttentionForward<T>& args, Isa highest = best_isa());

// The same bits, computed by the calling thread alone and without an allocation: `scratch` is 64-byte aligned and has
// attention_forward_scratch<T>(length of the longest sequence, head_dim) floats.
template <typename T>
void attention_forward_on_thread(const AttentionForward<T>& args, float* scratch, Isa highest = best_isa());
template <typename T>
int64_t attention_forward_scratch(int64_t longest, int64_t head_dim, Isa highest = best_isa());

template <typename T>
void attention_backward(const AttentionBackward<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
