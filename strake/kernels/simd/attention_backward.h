#pragma once

#include "strake/kernels/simd/attention.h"

// The backward pass of attention, which computes scores and dropout again. Beside keys, values are transposed.
namespace strake::kernels {
namespace {

template <class S>
int64_t attention_backward_scratch(int64_t length, int64_t head_dim) {
  const AttentionSizes<S> sizes(length, head_dim);
  return 2 * round_up(sizes.transposed, 16) + 3 * sizes.rows() + 3 * sizes.block() + 2 * sizes.scores() + sizes.bits() +
         64;
}

// Scratch of the backward pass of one item.
template <class S>
struct BackwardScratch {
  BackwardScratch(const AttentionSizes<S>& sizes, float* memory) {
    const auto take = [&](int64_t floats) {
      float* const piece = memory;
      memory += round_up(floats, 16);
      return piece;
    };
    keys_t = take(sizes.transposed);
    values_t = take(sizes.transposed);
    keys = take(sizes.rows());
    dk = take(sizes.rows());
    dv = take(sizes.rows());
    queries = take(sizes.block());
    dout = take(sizes.block());
    dq = take(sizes.block());
    p = take(sizes.scores());
    dp = take(sizes.scores());
    bits = reinterpret_cast<unsigned char*>(take(sizes.bits()));
  }
  float *keys_t, *values_t, *keys, *dk, *dv, *queries, *dout, *dq, *p, *dp;
  unsigned char* bits;
};

struct SoftmaxRow {
  float* p;   // in: scores; out: probabilities after dropout
  float* dp;  // in: dO V^T; out: gradient of the scores
  int64_t visible;
  float lse;
  float row_dot;              // of dO and O
  float scale;                // of kept probabilities
  const unsigned char* bits;  // null: nothing is dropped
};

template <class S>
inline void softmax_gradient_row(const SoftmaxRow& row) {
  using Float = typename S::Float;
  const Float lse = S::set(row.lse);
  for_each_vector<S>(row.visible, [&](int64_t j, auto lanes) {
    const Float p = S::first(exp<S>(S::load_or(lse, row.p + j, lanes) - lse), lanes);
    Float factor = S::set(row.scale);
    if (row.bits != nullptr) factor = S::keep(factor, bits_at<S>(row.bits, j));
    const Float dp = factor * S::load_or(S::zero(), row.dp + j, lanes);
    S::store(row.p + j, p * factor);
    S::store(row.dp + j, p * (dp - S::set(row.row_dot)));
  });
}

template <class S, class T>
inline float dot_row(const T* a, const T* b, int64_t n) {
  typename S::Float sum = S::zero();
  for_each_vector<S>(n,
                     [&](int64_t d, auto lanes) { sum = S::fma(S::load(a + d, lanes), S::load(b + d, lanes), sum); });
  return S::sum(sum);
}

// softmax_gradient_row for all queries of a block.
template <class S, class T>
inline void softmax_gradient_block(const AttentionBackward<T>& args, const KeepRule& rule, const AttentionItem& item,
                                   const BackwardScratch<S>& w, const QueryBlock& block) {
  const AttentionShape& shape = args.shape;
  const AttentionSizes<S> sizes(item.length, shape.head_dim);
  const int64_t token = item.first_token + block.first;
  const int64_t out_at = token * args.out_stride + item.head * shape.head_dim;
  if (rule.active) fill_keep_bits<S>(rule, item, block, sizes.bits_row, w.bits);
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t visible = block.last_key(shape, i);
    const float row_dot =
        dot_row<S>(args.out + out_at + i * args.out_stride, args.dout + out_at + i * args.out_stride, shape.head_dim);
    softmax_gradient_row<S>({.p = w.p + i * sizes.score_row,
                             .dp = w.dp + i * sizes.score_row,
                             .visible = visible,
                             .lse = args.lse[(token + i) * shape.num_heads + item.head],
                             .row_dot = row_dot,
                             .scale = rule.scale,
                             .bits = rule.active ? w.bits + i * sizes.bits_row : nullptr});
    clear_behind<S>(w.p + i * sizes.score_row, visible, block.keys);
    clear_behind<S>(w.dp + i * sizes.score_row, visible, block.keys);
  }
}

template <class S, class T>
inline void backward_block(const AttentionBackward<T>& args, const KeepRule& rule, const AttentionItem& item,
                           const BackwardScratch<S>& w, const QueryBlock& block) {
  const AttentionShape& shape = args.shape;
  const AttentionSizes<S> sizes(item.length, shape.head_dim);
  const int64_t token = item.first_token + block.first;
  const int64_t column = item.head * shape.head_dim;
  const int64_t key_vectors = round_up(block.keys, S::kLanes) / S::kLanes;
  const int64_t dim_vectors = sizes.dim / S::kLanes;
  const T* const dout = args.dout + token * args.out_stride + column;
  widen_rows<S, T>({args.q + token * args.qkv_stride + column, args.qkv_stride, block.rows, shape.head_dim},
                   shape.scale, w.queries);
  widen_rows<S, T>({dout, args.out_stride, block.rows, shape.head_dim}, 1.0F, w.dout);
  const Gemm scores{.a = w.queries,
                    .a_row = sizes.dim,
                    .a_depth = 1,
                    .b = w.keys_t,
                    .b_row = sizes.panel,
                    .b_panel = sizes.panel * shape.head_dim,
                    .c = w.p,
                    .c_row = sizes.score_row,
                    .rows = block.rows,
                    .vectors = key_vectors,
                    .depth = shape.head_dim};
  gemm<S, Into::kOverwrite>(scores);
  Gemm dout_values = scores;
  dout_values.a = w.dout, dout_values.b = w.values_t, dout_values.c = w.dp;
  gemm<S, Into::kOverwrite>(dout_values);
  softmax_gradient_block<S>(args, rule, item, w, block);
  const Gemm dv{.a = w.p,
                .a_row = 1,
                .a_depth = sizes.score_row,
                .b = w.dout,
                .b_row = sizes.dim,
                .b_panel = sizes.panel,
                .c = w.dv,
                .c_row = sizes.dim,
                .rows = block.keys,
                .vectors = dim_vectors,
                .depth = block.rows};
  gemm<S, Into::kAdd>(dv);
  Gemm dk = dv;
  dk.a = w.dp, dk.b = w.queries, dk.c = w.dk;
  gemm<S, Into::kAdd>(dk);
  gemm<S, Into::kOverwrite>({.a = w.dp,
                             .a_row = sizes.score_row,
                             .a_depth = 1,
                             .b = w.keys,
                             .b_row = sizes.dim,
                             .b_panel = sizes.panel,
                             .c = w.dq,
                             .c_row = sizes.dim,
                             .rows = block.rows,
                             .vectors = dim_vectors,
                             .depth = block.keys});
  narrow_rows<S, T>(w.dq, shape.scale,
                    {args.dq + token * args.grad_stride + column, args.grad_stride, block.rows, shape.head_dim});
}

template <class S, class T>
void attention_backward_item(const AttentionBackward<T>& args, const KeepRule& rule, const AttentionItem& item,
                             float* scratch) {
  const AttentionShape& shape = args.shape;
  const AttentionSizes<S> sizes(item.length, shape.head_dim);
  const BackwardScratch<S> w(sizes, scratch);
  const int64_t at = item.first_token * args.qkv_stride + item.head * shape.head_dim;
  const int64_t grad_at = item.first_token * args.grad_stride + item.head * shape.head_dim;
  prefetch_next_head(args, item);
  const int64_t out_at = item.first_token * args.out_stride + item.head * shape.head_dim;
  prefetch_rows(args.out + out_at, args.out_stride, item.length, shape.head_dim);
  prefetch_rows(args.dout + out_at, args.out_stride, item.length, shape.head_dim);
  const T* const results[] = {args.dq, args.dk, args.dv};
  for (const T* part : results) {
    prefetch_rows(part + grad_at, args.grad_stride, item.length, shape.head_dim);
  }
  transpose_rows<S>(args.k + at, args.qkv_stride, item.length, shape.head_dim, w.keys_t);
  transpose_rows<S>(args.v + at, args.qkv_stride, item.length, shape.head_dim, w.values_t);
  widen_rows<S, T>({args.k + at, args.qkv_stride, item.length, shape.head_dim}, 1.0F, w.keys);
  for (int64_t n = 0; n < sizes.rows(); n += S::kLanes) {
    S::store(w.dk + n, S::zero());
    S::store(w.dv + n, S::zero());
  }
  for (int64_t first = 0; first < item.length; first += kQueryBlock) {
    backward_block<S>(args, rule, item, w, query_block(shape, item.length, first));
  }
  narrow_rows<S, T>(w.dk, 1.0F, {args.dk + grad_at, args.grad_stride, item.length, shape.head_dim});
  narrow_rows<S, T>(w.dv, 1.0F, {args.dv + grad_at, args.grad_stride, item.length, shape.head_dim});
}

}  // namespace
}  // namespace strake::kernels
