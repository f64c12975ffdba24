#include <cmath>
#include <limits>

#include "strake/kernels/attention_rungs.h"

namespace strake::kernels::reference {
namespace {

constexpr int64_t kElementsPerHead = kMaxAttentionKeysWithDropout;

int64_t num_keys(const AttentionShape& shape, const AttentionItem& item, int64_t query) {
  return shape.mask == AttentionMask::kCausal ? query + 1 : item.length;
}

template <typename T>
float dot(const T* a, const T* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

int64_t forward_scratch(int64_t length, int64_t) { return length; }

template <typename T>
void forward(const AttentionForward<T>& args, const KeepRule& keep, const AttentionItem& item, float* scores) {
  const int64_t dim = args.shape.head_dim;
  const auto at = [&](const T* base, int64_t i) {
    return base + (item.first_token + i) * args.qkv_stride + item.head * dim;
  };
  for (int64_t i = 0; i < item.length; ++i) {
    const int64_t token = item.first_token + i;
    const int64_t keys = num_keys(args.shape, item, i);
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < keys; ++j) {
      scores[j] = args.shape.scale * dot(at(args.q, i), at(args.k, j), dim);
      largest = std::fmax(largest, scores[j]);
    }
    float sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      scores[j] = std::exp(scores[j] - largest);
      sum += scores[j];
    }
    args.lse[token * args.shape.num_heads + item.head] = largest + std::log(sum);
    for (int64_t d = 0; d < dim; ++d) {
      float value = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const float factor = keep_factor(keep, token, item.head * kElementsPerHead + j);
        value += factor * scores[j] / sum * to_float(at(args.v, j)[d]);
      }
      args.out[token * args.out_stride + item.head * dim + d] = from_float<T>(value);
    }
  }
}

int64_t backward_scratch(int64_t length, int64_t head_dim) { return 2 * length * head_dim + head_dim; }

// With P the probabilities and M the dropout factors: dV = (P M)^T dO, dP = M (dO V^T), dS = P (dP - rowsum(dO O)),
// dQ = scale dS K, dK = scale dS^T Q.
template <typename T>
void backward(const AttentionBackward<T>& args, const KeepRule& keep, const AttentionItem& item, float* scratch) {
  const int64_t dim = args.shape.head_dim;
  const auto at = [&](const T* base, int64_t i) {
    return base + (item.first_token + i) * args.qkv_stride + item.head * dim;
  };
  const auto grad = [&](T* base, int64_t i) {
    return base + (item.first_token + i) * args.grad_stride + item.head * dim;
  };
  float* const dk = scratch;
  float* const dv = dk + item.length * dim;
  float* const dq = dv + item.length * dim;
  for (int64_t n = 0; n < 2 * item.length * dim; ++n) scratch[n] = 0;
  for (int64_t i = 0; i < item.length; ++i) {
    const int64_t token = item.first_token + i;
    const T* const out = args.out + token * args.out_stride + item.head * dim;
    const T* const dout = args.dout + token * args.out_stride + item.head * dim;
    const float lse = args.lse[token * args.shape.num_heads + item.head];
    const float row_dot = dot(out, dout, dim);
    for (int64_t d = 0; d < dim; ++d) dq[d] = 0;
    for (int64_t j = 0; j < num_keys(args.shape, item, i); ++j) {
      const float factor = keep_factor(keep, token, item.head * kElementsPerHead + j);
      const float p = std::exp(args.shape.scale * dot(at(args.q, i), at(args.k, j), dim) - lse);
      const float dp = factor * dot(dout, at(args.v, j), dim);
      const float ds = args.shape.scale * p * (dp - row_dot);
      for (int64_t d = 0; d < dim; ++d) {
        dv[j * dim + d] += factor * p * to_float(dout[d]);
        dk[j * dim + d] += ds * to_float(at(args.q, i)[d]);
        dq[d] += ds * to_float(at(args.k, j)[d]);
      }
    }
    for (int64_t d = 0; d < dim; ++d) grad(args.dq, i)[d] = from_float<T>(dq[d]);
  }
  for (int64_t j = 0; j < item.length; ++j) {
    for (int64_t d = 0; d < dim; ++d) {
      grad(args.dk, j)[d] = from_float<T>(dk[j * dim + d]);
      grad(args.dv, j)[d] = from_float<T>(dv[j * dim + d]);
    }
  }
}

}  // namespace

const AttentionRung<float> kAttentionFloat{Isa::kReference, &forward_scratch, &backward_scratch,
                                           &for_each_head<&forward<float>>, &for_each_head<&backward<float>>};
const AttentionRung<BFloat16> kAttentionBFloat16{Isa::kReference, &forward_scratch, &backward_scratch,
                                                 &for_each_head<&forward<BFloat16>>,
                                                 &for_each_head<&backward<BFloat16>>};
const AttentionRung<Half> kAttentionHalf{Isa::kReference, &forward_scratch, &backward_scratch,
                                         &for_each_head<&forward<Half>>, &for_each_head<&backward<Half>>};

}  // namespace strake::kernels::reference
