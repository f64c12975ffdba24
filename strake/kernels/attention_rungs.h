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

// Consecutive heads of one sequence.
struct AttentionHeads {
  int64_t first_token;
  int64_t length;
  int64_t begin, end;
  AttentionItem item(int64_t head) const { return {first_token, length, head}; }
};

// Queries that are worked on together: scores need kQueryBlock x length floats.
inline constexpr int64_t kQueryBlock = 32;

namespace {

// A kernel of one head as one of several.
template <auto kKernel, class Args>
void for_each_head(const Args& args, const KeepRule& rule, const AttentionHeads& heads, float* scratch) {
  for (int64_t head = heads.begin; head < heads.end; ++head) kKernel(args, rule, heads.item(head), scratch);
}

}  // namespace

template <typename T>
struct AttentionRung {
  Isa isa;
  // Floats of scratch that an item of this length and head size needs, 64-byte aligned.
  int64_t (*forward_scratch)(int64_t length, int64_t head_dim);
  int64_t (*backward_scratch)(int64_t length, int64_t head_dim);
  void (*forward)(const AttentionForward<T>&, const KeepRule&, const AttentionHeads&, float* scratch);
  void (*backward)(const AttentionBackward<T>&, const KeepRule&, const AttentionHeads&, float* scratch);
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
namespace amx {
// Probabilities are rounded to bf16 before they are multiplied by values.
extern const AttentionRung<BFloat16> kAttentionBFloat16;
}  // namespace amx

}  // namespace strake::kernels
