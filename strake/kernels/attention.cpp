#include "strake/kernels/attention.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/attention_rungs.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/scratch.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<AttentionRung<float>, 3> kLadder<float>{&avx512::kAttentionFloat, &avx2::kAttentionFloat,
                                                         &reference::kAttentionFloat};
template <>
constexpr Ladder<AttentionRung<BFloat16>, 5> kLadder<BFloat16>{
    &amx::kAttentionBFloat16, &avx512::kAttentionBFloat16Conversion, &avx512::kAttentionBFloat16,
    &avx2::kAttentionBFloat16, &reference::kAttentionBFloat16};
template <>
constexpr Ladder<AttentionRung<Half>, 3> kLadder<Half>{&avx512::kAttentionHalf, &avx2::kAttentionHalf,
                                                       &reference::kAttentionHalf};

int64_t length(const AttentionShape& shape, int64_t sequence) {
  return int64_t{shape.offsets[sequence + 1]} - shape.offsets[sequence];
}

// Checks the shape and returns the length of the longest sequence.
int64_t longest_sequence(const AttentionShape& shape) {
  require(shape.num_sequences >= 0 && shape.num_heads > 0 && shape.head_dim > 0, ErrorKind::kInternal,
          "attention over {} sequences, {} heads of {}", shape.num_sequences, shape.num_heads, shape.head_dim);
  int64_t longest = 0;
  for (int64_t s = 0; s < shape.num_sequences; ++s) {
    require(length(shape, s) >= 0, ErrorKind::kInternal, "sequence {} has length {}", s, length(shape, s));
    longest = std::max(longest, length(shape, s));
  }
  require(shape.dropout.p == 0 || (longest <= kMaxAttentionKeysWithDropout && shape.num_heads <= 4096),
          ErrorKind::kInternal, "attention dropout over {} keys and {} heads: at most 2^20 and 4096", longest,
          shape.num_heads);
  return longest;
}

// Calls run(heads, scratch) for all heads of all sequences. Threads get consecutive heads of about equal total cost: a
// head belongs to the thread in whose range of the cost axis it starts.
template <typename Run>
void for_each_heads(const AttentionShape& shape, int64_t scratch_floats, const Run& run) {
  std::vector<int64_t> start(static_cast<size_t>(shape.num_sequences) + 1, 0);  // on the cost axis
  for (int64_t s = 0; s < shape.num_sequences; ++s) {
    const int64_t cost = length(shape, s) * (length(shape, s) + 32);  // copies are worth about 32 keys
    start[static_cast<size_t>(s) + 1] = start[static_cast<size_t>(s)] + cost * shape.num_heads;
  }
  Scratch scratch(num_threads(), scratch_floats);
  parallel_for(start.back(), 1, [&](int64_t begin, int64_t end) {
    float* const piece = scratch.take();
    const auto first = std::upper_bound(start.begin(), start.end(), begin) - start.begin() - 1;
    for (int64_t s = first; s < shape.num_sequences && start[static_cast<size_t>(s)] < end; ++s) {
      const int64_t from = start[static_cast<size_t>(s)];
      const int64_t cost = (start[static_cast<size_t>(s) + 1] - from) / shape.num_heads;
      const auto heads_before = [&](int64_t at) {
        return std::clamp<int64_t>((at - from + cost - 1) / cost, 0, shape.num_heads);
      };
      if (cost == 0) continue;
      const AttentionHeads heads{shape.offsets[s], length(shape, s), heads_before(begin), heads_before(end)};
      if (heads.begin < heads.end) run(heads, piece);
    }
  });
}

}  // namespace

template <typename T>
void attention_forward(const AttentionForward<T>& args, Isa highest) {
  const AttentionRung<T>& rung = pick(kLadder<T>, highest);
  const int64_t longest = longest_sequence(args.shape);
  const KeepRule keep = keep_rule(args.shape.dropout, args.shape.index);
  for_each_heads(args.shape, rung.forward_scratch(longest, args.shape.head_dim),
                 [&](const AttentionHeads& heads, float* scratch) { rung.forward(args, keep, heads, scratch); });
}

template <typename T>
void attention_forward_on_thread(const AttentionForward<T>& args, float* scratch, Isa highest) {
  const AttentionRung<T>& rung = pick(kLadder<T>, highest);
  longest_sequence(args.shape);  // checks it
  const KeepRule keep = keep_rule(args.shape.dropout, args.shape.index);
  for (int64_t s = 0; s < args.shape.num_sequences; ++s) {
    if (length(args.shape, s) == 0) continue;
    rung.forward(args, keep, {args.shape.offsets[s], length(args.shape, s), 0, args.shape.num_heads}, scratch);
  }
}

template <typename T>
int64_t attention_forward_scratch(int64_t longest, int64_t head_dim, Isa highest) {
  return pick(kLadder<T>, highest).forward_scratch(longest, head_dim);
}

template <typename T>
void attention_backward(const AttentionBackward<T>& args, Isa highest) {
  const AttentionRung<T>& rung = pick(kLadder<T>, highest);
  const int64_t longest = longest_sequence(args.shape);
  const KeepRule keep = keep_rule(args.shape.dropout, args.shape.index);
  for_each_heads(args.shape, rung.backward_scratch(longest, args.shape.head_dim),
                 [&](const AttentionHeads& heads, float* scratch) { rung.backward(args, keep, heads, scratch); });
}

template void attention_forward(const AttentionForward<float>&, Isa);
template void attention_forward(const AttentionForward<BFloat16>&, Isa);
template void attention_forward(const AttentionForward<Half>&, Isa);
template void attention_forward_on_thread(const AttentionForward<float>&, float*, Isa);
template void attention_forward_on_thread(const AttentionForward<BFloat16>&, float*, Isa);
template void attention_forward_on_thread(const AttentionForward<Half>&, float*, Isa);
template int64_t attention_forward_scratch<float>(int64_t, int64_t, Isa);
template int64_t attention_forward_scratch<BFloat16>(int64_t, int64_t, Isa);
template int64_t attention_forward_scratch<Half>(int64_t, int64_t, Isa);
template void attention_backward(const AttentionBackward<float>&, Isa);
template void attention_backward(const AttentionBackward<BFloat16>&, Isa);
template void attention_backward(const AttentionBackward<Half>&, Isa);

}  // namespace strake::kernels
