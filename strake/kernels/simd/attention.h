#pragma once

#include "strake/kernels/attention_rungs.h"
#include "strake/kernels/simd/keep_bits.h"
#include "strake/kernels/simd/lanes.h"
#include "strake/kernels/simd/math.h"
#include "strake/kernels/simd/small_gemm.h"

// Attention of one head of one sequence in fp32 scratch. Keys are transposed, so that scores are computed many keys at
// a time; the rest is small matrix products on blocks of kQueryBlock queries. The backward pass: attention_backward.h.
namespace strake::kernels {
namespace {

// Sizes of scratch arrays. Rows are whole vectors; score rows get one vector more, so that walking down a column does
// not hit the same cache set again and again.
template <class S>
struct AttentionSizes {
  AttentionSizes(int64_t length, int64_t head_dim)
      : keys(round_up(length, S::kLanes)),
        dim(round_up(head_dim, S::kLanes)),
        score_row(round_up(length, 16) + 16),
        panel(S::kGemmVectors * S::kLanes),
        transposed(round_up(length, panel) * head_dim),
        bits_row(round_up(length, 64) / 8 + 8) {}
  int64_t keys, dim, score_row, panel, transposed, bits_row;

  int64_t rows() const { return round_up(keys * dim, 16); }
  int64_t block() const { return round_up(kQueryBlock * dim, 16); }
  int64_t scores() const { return kQueryBlock * score_row; }
  int64_t bits() const { return round_up(kQueryBlock * bits_row / 4, 16); }
};

// `count` rows of `dim` elements, `stride` elements apart.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  int64_t count;
  int64_t dim;
};

// Rows as fp32 times `factor`, filled with zeros up to whole vectors.
template <class S, class T>
inline void widen_rows(const Rows<const T>& from, float factor, float* to) {
  const int64_t width = round_up(from.dim, S::kLanes);
  for (int64_t i = 0; i < from.count; ++i) {
    for_each_vector<S>(from.dim, [&](int64_t d, auto lanes) {
      S::store(to + i * width + d, S::load(from.data + i * from.stride + d, lanes) * S::set(factor));
    });
  }
}

// The way back.
template <class S, class T>
inline void narrow_rows(const float* from, float factor, const Rows<T>& to) {
  const int64_t width = round_up(to.dim, S::kLanes);
  for (int64_t i = 0; i < to.count; ++i) {
    for_each_vector<S>(to.dim, [&](int64_t d, auto lanes) {
      S::store(to.data + i * to.stride + d, S::load(from + i * width + d) * S::set(factor), lanes);
    });
  }
}

// Transposes rows into panels of S::kGemmVectors vectors: to[panel][d][row in panel]; rows beyond the last are 0.
template <class S, class T>
inline void transpose_rows(const T* from, int64_t stride, int64_t rows, int64_t head_dim, float* to) {
  constexpr int64_t kPanel = S::kGemmVectors * S::kLanes;
  for (int64_t i = 0; i < rows; i += S::kLanes) {
    float* const panel = to + i / kPanel * kPanel * head_dim + i % kPanel;
    const int64_t present = smaller(S::kLanes, rows - i);
    for_each_vector<S>(head_dim, [&](int64_t d, auto lanes) {
      typename S::Float square[S::kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < S::kLanes; ++r) {
        square[r] = r < present ? S::load(from + (i + r) * stride + d, lanes) : S::zero();
      }
      S::transpose(square);
#pragma GCC unroll 16
      for (int r = 0; r < S::kLanes; ++r) {
        if (d + r < head_dim) S::store(panel + (d + r) * kPanel, square[r]);
      }
    });
  }
}

// Asks for one head's piece of each row. The pieces are a long stride apart, which the processor does not foresee.
template <class T>
inline void prefetch_rows(const T* from, int64_t stride, int64_t rows, int64_t head_dim) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < head_dim; d += kLine) __builtin_prefetch(from + i * stride + d);
  }
}

// Asks for what the next item reads; `args` is AttentionForward or AttentionBackward.
template <class Args>
inline void prefetch_next_head(const Args& args, const AttentionItem& item) {
  if (item.head + 1 == args.shape.num_heads) return;
  const int64_t at = item.first_token * args.qkv_stride + (item.head + 1) * args.shape.head_dim;
  prefetch_rows(args.q + at, args.qkv_stride, item.length, args.shape.head_dim);
  prefetch_rows(args.k + at, args.qkv_stride, item.length, args.shape.head_dim);
  prefetch_rows(args.v + at, args.qkv_stride, item.length, args.shape.head_dim);
}

// One block of queries and the keys it may see.
struct QueryBlock {
  int64_t first;  // in the sequence
  int64_t rows;
  int64_t keys;
  int64_t last_key(const AttentionShape& shape, int64_t row) const {  // one behind the last visible key
    return shape.mask == AttentionMask::kCausal ? first + row + 1 : keys;
  }
};

inline QueryBlock query_block(const AttentionShape& shape, int64_t length, int64_t first) {
  const int64_t end = smaller(length, first + kQueryBlock);
  return {first, end - first, shape.mask == AttentionMask::kCausal ? end : length};
}

// Keep bits of a block, `bits_row` bytes a query. A vector of counters covers 4 * S::kLanes keys, so that several short
// rows share one.
template <class S>
inline void fill_keep_bits(const KeepRule& rule, const AttentionItem& item, const QueryBlock& block, int64_t bits_row,
                           unsigned char* bits) {
  const int64_t groups = (block.keys + 3) / 4;
  int64_t lanes_per_row = S::kLanes;
  while (lanes_per_row / 2 >= groups && lanes_per_row > S::kLanes / 4) lanes_per_row /= 2;
  const int64_t rows_at_once = S::kLanes / lanes_per_row;
  const auto head_group = static_cast<uint32_t>(item.head * (kMaxAttentionKeysWithDropout / 4));
  for (int64_t row = 0; row < block.rows; row += rows_at_once) {
    uint32_t words[4][S::kLanes];
    for (int lane = 0; lane < S::kLanes; ++lane) {
      const int64_t token = item.first_token + block.first + smaller(block.rows - 1, row + lane / lanes_per_row);
      words[0][lane] = head_group + static_cast<uint32_t>(lane % lanes_per_row);
      words[1][lane] = static_cast<uint32_t>(rule.index.position[token]);
      words[2][lane] = static_cast<uint32_t>(rule.index.row[token]);
      words[3][lane] = last_counter_word(rule, token);
    }
    Counters<S> counters{{S::load_int(words[0]), S::load_int(words[1]), S::load_int(words[2]), S::load_int(words[3])}};
    for (int64_t group = 0; group < groups; group += lanes_per_row) {
      uint64_t kept = keep_bits<S>(rule, counters);
      for (int64_t r = 0; r < smaller(rows_at_once, block.rows - row); ++r) {
        __builtin_memcpy(bits + (row + r) * bits_row + group / 2, &kept, S::kLanes / 2);
        if (rows_at_once > 1) kept >>= 4 * lanes_per_row;
      }
      counters.word[0] = S::add(counters.word[0], S::set_int(static_cast<uint32_t>(lanes_per_row)));
    }
  }
}

// Lanes of the vector at key j, in the low bits.
template <class S>
inline uint32_t bits_at(const unsigned char* bits, int64_t j) {
  uint16_t two_bytes = 0;
  __builtin_memcpy(&two_bytes, bits + j / 8, S::kLanes / 8);
  return two_bytes;
}

// Zeroes what lies between the vectors that hold visible keys and the end of the block's keys.
template <class S>
inline void clear_behind(float* row, int64_t visible, int64_t keys) {
  for (int64_t j = round_up(visible, S::kLanes); j < round_up(keys, S::kLanes); j += S::kLanes) {
    S::store(row + j, S::zero());
  }
}

struct RowSum {
  float largest;
  float sum;
};

// The same for each query of a block; rows that do not exist have harmless values.
struct BlockSums {
  alignas(64) float largest[kQueryBlock];
  alignas(64) float sum[kQueryBlock];
};

// Turns the visible scores of a row into exp(score - largest), dropped ones into 0; the sum counts all of them.
template <class S>
inline RowSum exp_row(float* row, int64_t visible, const unsigned char* bits) {
  using Float = typename S::Float;
  const Float lowest = S::set(-kInfinity);
  Float largest = lowest;
  for_each_vector<S>(visible,
                     [&](int64_t j, auto lanes) { largest = S::max(largest, S::load_or(lowest, row + j, lanes)); });
  const float maximum = S::maximum(largest);
  const Float shift = S::set(maximum);
  Float sum = S::zero();
  for_each_vector<S>(visible, [&](int64_t j, auto lanes) {
    // Lanes behind the last become 0 afterwards: the exponential of -infinity goes by way of denormal numbers, which
    // cost Intel's processors a hundred cycles.
    const Float p = S::first(exp<S>(S::load_or(shift, row + j, lanes) - shift), lanes);
    sum = sum + p;
    S::store(row + j, bits == nullptr ? p : S::keep(p, bits_at<S>(bits, j)));
  });
  return {maximum, S::sum(sum)};
}

template <class S>
inline BlockSums exp_block(const AttentionShape& shape, const AttentionSizes<S>& sizes, const QueryBlock& block,
                           float* scores, const unsigned char* bits) {
  BlockSums sums;
  for (int64_t i = 0; i < kQueryBlock; ++i) {
    sums.largest[i] = 0.0F;
    sums.sum[i] = 1.0F;
  }
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t visible = block.last_key(shape, i);
    float* const row = scores + i * sizes.score_row;
    const RowSum result = exp_row<S>(row, visible, bits == nullptr ? nullptr : bits + i * sizes.bits_row);
    clear_behind<S>(row, visible, block.keys);
    sums.largest[i] = result.largest;
    sums.sum[i] = result.sum;
  }
  return sums;
}

template <class S>
int64_t attention_forward_scratch(int64_t length, int64_t head_dim) {
  const AttentionSizes<S> sizes(length, head_dim);
  return sizes.transposed + sizes.rows() + 2 * sizes.block() + sizes.scores() + sizes.bits() + 64;
}

// lse = largest + log(sum) for a block of queries.
template <class S>
inline void store_lse(const BlockSums& sums, int64_t rows, float* lse, int64_t stride) {
  alignas(64) float values[kQueryBlock];
  for (int64_t i = 0; i < rows; i += S::kLanes) {
    S::store(values + i, S::load(sums.largest + i) + log<S>(S::load(sums.sum + i)));
  }
  for (int64_t i = 0; i < rows; ++i) lse[i * stride] = values[i];
}

template <class S, class T>
void attention_forward_item(const AttentionForward<T>& args, const KeepRule& rule, const AttentionItem& item,
                            float* scratch) {
  const AttentionShape& shape = args.shape;
  const AttentionSizes<S> sizes(item.length, shape.head_dim);
  float* const keys = scratch;
  float* const values = keys + round_up(sizes.transposed, 16);
  float* const queries = values + sizes.rows();
  float* const scores = queries + sizes.block();
  float* const results = scores + sizes.scores();
  auto* const bits = reinterpret_cast<unsigned char*>(results + sizes.block());

  const int64_t at = item.first_token * args.qkv_stride + item.head * shape.head_dim;
  prefetch_next_head(args, item);
  prefetch_rows(args.out + item.first_token * args.out_stride + item.head * shape.head_dim, args.out_stride,
                item.length, shape.head_dim);
  transpose_rows<S>(args.k + at, args.qkv_stride, item.length, shape.head_dim, keys);
  widen_rows<S, T>({args.v + at, args.qkv_stride, item.length, shape.head_dim}, 1.0F, values);
  for (int64_t first = 0; first < item.length; first += kQueryBlock) {
    const QueryBlock block = query_block(shape, item.length, first);
    widen_rows<S, T>({args.q + at + first * args.qkv_stride, args.qkv_stride, block.rows, shape.head_dim}, shape.scale,
                     queries);
    gemm<S, Into::kOverwrite>({.a = queries,
                               .a_row = sizes.dim,
                               .a_depth = 1,
                               .b = keys,
                               .b_row = sizes.panel,
                               .b_panel = sizes.panel * shape.head_dim,
                               .c = scores,
                               .c_row = sizes.score_row,
                               .rows = block.rows,
                               .vectors = round_up(block.keys, S::kLanes) / S::kLanes,
                               .depth = shape.head_dim});
    if (rule.active) fill_keep_bits<S>(rule, item, block, sizes.bits_row, bits);
    const BlockSums sums = exp_block<S>(shape, sizes, block, scores, rule.active ? bits : nullptr);
    gemm<S, Into::kOverwrite>({.a = scores,
                               .a_row = sizes.score_row,
                               .a_depth = 1,
                               .b = values,
                               .b_row = sizes.dim,
                               .b_panel = sizes.panel,
                               .c = results,
                               .c_row = sizes.dim,
                               .rows = block.rows,
                               .vectors = sizes.dim / S::kLanes,
                               .depth = block.keys});
    const int64_t token = item.first_token + first;
    for (int64_t i = 0; i < block.rows; ++i) {
      narrow_rows<S, T>(
          results + i * sizes.dim, rule.scale / sums.sum[i],
          {args.out + (token + i) * args.out_stride + item.head * shape.head_dim, args.out_stride, 1, shape.head_dim});
    }
    store_lse<S>(sums, block.rows, args.lse + token * shape.num_heads + item.head, shape.num_heads);
  }
}

}  // namespace
}  // namespace strake::kernels
