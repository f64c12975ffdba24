#pragma once

#include "strake/kernels/attention.h"
#include "strake/kernels/keep_rule.h"

namespace strake::kernels {

// One head of one sequence.
struct AttentionItem {
  int64_t first_token;
  int64_t length;
  int64_t head;
};

// Queries that are worked on together: scores need kQueryBlock x length floats.
inline constexpr int64_t kQueryBlock = 32;

template <typename T>
struct AttentionRung {
  Isa isa;
  // Floats of scratch that an item of this length and head size needs, 64-byte aligned.
  int64_t (*forward_scratch)(int64_t length, int64_t head_dim);
  int64_t (*backward_scratch)(int64_t length, int64_t head_dim);
  void (*forward)(const AttentionForward<T>&, const KeepRule&, const AttentionItem&, float* scratch);
  void (*backward)(const AttentionBackward<T>&, const KeepRule&, const AttentionItem&, float* scratch);
};

namespace reference {
extern const AttentionRung<float> kAttentionFloat;
extern const AttentionRung<BFloat16> kAttentionBFloat16;
extern const AttentionRung<Half> kAttentionHalf;
}  // namespace reference
namespace avx2 {
extern const AttentionRung<float> kAttentionFloat;
extern const AttentionRung<BFloat16> kAttentionBFloat16;
extern const AttentionRung<Half> kAttentionHalf;
}  // namespace avx2
namespace avx512 {
extern const AttentionRung<float> kAttentionFloat;
extern const AttentionRung<BFloat16> kAttentionBFloat16;
extern const AttentionRung<Half> kAttentionHalf;
// With AVX512-BF16's conversion: results are rounded alike, but denormal ones become 0.
extern const AttentionRung<BFloat16> kAttentionBFloat16Conversion;
}  // namespace avx512

}  // namespace strake::kernels
