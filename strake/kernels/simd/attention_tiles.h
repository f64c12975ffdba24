#pragma once

#include "strake/kernels/simd/attention_backward.h"
#include "strake/kernels/simd/avx512_bf16.h"
#include "strake/kernels/simd/matmul_tile_rows.h"

// Attention's forward pass of bf16 on tiles (tiles.h). A block of queries is multiplied by panels of 32 keys, its
// scores become probabilities in bf16, and these are multiplied by panels of 32 of the values' numbers. Scores, the
// largest of a row and the sum of its exponentials are fp32; the sum is of numbers that are not rounded.
namespace strake::kernels {
namespace {

static_assert(kQueryBlock == kTiledRows);

// Sizes of scratch arrays, in floats.
struct TiledAttentionSizes {
  TiledAttentionSizes(int64_t length, int64_t head_dim)
      : key_steps((length + kTiledColumns - 1) / kTiledColumns),
        dim_steps((head_dim + kTiledColumns - 1) / kTiledColumns),
        bits_row(round_up(length, 64) / 8 + 8) {}

  // Of a panel; a cache line more than a power of two, or one row's pieces of all panels would share a set of the
  // cache.
  static constexpr int64_t kScores = kTileFloats + 16;

  static int64_t row(int64_t steps) { return row_stride<BFloat16>(steps * kTiledColumns) / 2; }
  int64_t panels() const { return key_steps * dim_steps * kStepFloats; }  // of keys, or of values
  int64_t scores() const { return key_steps * kScores; }
  int64_t results() const { return dim_steps * kTileFloats; }
  int64_t bits() const { return round_up(kQueryBlock * bits_row / 4, 16); }

  int64_t key_steps, dim_steps, bits_row;  // a step is 32 numbers, as many as a panel has columns
};

// Cut from `memory`; without memory it is only counted.
struct TiledAttentionScratch {
  TiledAttentionScratch(const TiledAttentionSizes& sizes, float* memory) {
    const auto take = [&](int64_t count) {
      float* const piece = memory == nullptr ? nullptr : memory + floats;
      floats += count;
      return piece;
    };
    keys = take(sizes.panels());
    values = take(sizes.panels());
    queries = take(kTiledRows * TiledAttentionSizes::row(sizes.dim_steps));
    scores = take(sizes.scores());
    probabilities = take(kTiledRows * TiledAttentionSizes::row(sizes.key_steps));
    results = take(sizes.results());
    bits = reinterpret_cast<unsigned char*>(take(sizes.bits()));
  }
  int64_t floats = 0;
  float *keys, *values;  // [panels, units of a step, 32]
  float* queries;        // [32, row]
  float* scores;         // [panels of keys, 32, 32]
  float* probabilities;  // [32, row]
  float* results;        // [panels of values, 32, 32]
  unsigned char* bits;   // keep bits of a block
};

inline int64_t tiled_attention_forward_scratch(int64_t length, int64_t head_dim) {
  return TiledAttentionScratch({length, head_dim}, nullptr).floats;
}

// Panels of 32 keys; those behind the last are what nobody looks at, numbers behind a key's last are 0.
inline void pack_keys(const Rows<const BFloat16>& keys, float* to) {
  const PanelSource<BFloat16> all{keys.data, keys.stride, true};
  const int64_t units = units_of<TiledPairs>(keys.dim);
  for (int64_t key = 0; key < keys.count; key += kTiledColumns, to += units * kTiledColumns) {
    const PanelShape shape{smaller(kTiledColumns, keys.count - key), kTiledColumns, keys.dim};
    pack_lines_along<TiledPairs>(all.from(key), shape, 0, units, to);
  }
}

// Panels of 32 numbers of each value; the values behind the last are 0.
inline void pack_values(const Rows<const BFloat16>& values, float* to) {
  const PanelSource<BFloat16> all{values.data, values.stride, false};
  const int64_t units = units_of<TiledPairs>(values.count);
  for (int64_t d = 0; d < values.dim; d += kTiledColumns, to += units * kTiledColumns) {
    const PanelShape shape{smaller(kTiledColumns, values.dim - d), kTiledColumns, values.count};
    pack_lines_across<TiledPairs>(all.from(d), shape, 0, units, to);
  }
}

// Rows of 32 times `panels` panels of B, which follow each other; the products go to `to`, `pitch` floats apart.
struct PanelProducts {
  const float* a;
  int64_t a_row;  // floats
  int64_t rows;
  int64_t steps;
  const float* b;
  int64_t b_panel;  // floats
  int64_t panels;
  float* to;
  int64_t pitch;
};

template <bool kTwoRows, class Tiles>
inline void multiply_panels_of(Tiles& tiles, const PanelProducts& p) {
  float* leaving = nullptr;
  for (int64_t panel = 0; panel < p.panels; ++panel) {
    multiply_tiles<BFloat16Numbers, kTwoRows>(
        tiles,
        {.a = p.a,
         .a_stride = p.a_row * 4,
         .b = p.b + panel * p.b_panel,
         .steps = p.steps,
         .sums = nullptr,
         .leaving = leaving},
        [](int) {}, [] {});
    leaving = p.to + panel * p.pitch;
  }
  store_sums_of(tiles, leaving);
}

template <class Tiles>
inline void multiply_panels(Tiles& tiles, const PanelProducts& products) {
  if (products.rows > kTileSide) return multiply_panels_of<true>(tiles, products);
  multiply_panels_of<false>(tiles, products);
}

// A row of scores in panels, and where its probabilities go.
struct ScoreRow {
  const float* scores;
  int64_t visible;
  int64_t keys;               // a multiple of 32 up to which there are probabilities, of those that are not visible 0
  float scale;                // of scores
  const unsigned char* bits;  // null: nothing is dropped
  BFloat16* p;

  const float* vector(int64_t key) const {
    return scores + key / kTiledColumns * TiledAttentionSizes::kScores + key % kTiledColumns;
  }
};

// 2^t of t below 1 to 2e-7: 2^n times a polynomial on |r| <= 1/2. Not below 2^-126: denormal numbers cost Intel's
// processors a hundred cycles.
inline __m512 power_of_two(__m512 t) {
  using S = Avx512Bf16;
  t = S::max(S::set(-126.0F), t);
  const __m512 n = S::round(t);
  const __m512 r = t - n;
  __m512 p = S::set(1.3264728e-3F);
  p = S::fma(p, r, S::set(9.6715130e-3F));
  p = S::fma(p, r, S::set(5.5507336e-2F));
  p = S::fma(p, r, S::set(2.4022242e-1F));
  p = S::fma(p, r, S::set(6.9314700e-1F));
  p = S::fma(p, r, S::set(1.0F));
  return S::times_power_of_two(p, n);
}

// exp(scale (score - largest)), dropped ones 0; the sum counts all of them.
inline RowSum exp_row_to_bfloat16(const ScoreRow& row) {
  using S = Avx512Bf16;
  const __m512 lowest = S::set(-kInfinity);
  __m512 most[2] = {lowest, lowest};
  for_each_two_vectors<S>(
      row.visible,
      [&](int64_t key) {
        most[0] = S::max(most[0], S::load(row.vector(key)));
        most[1] = S::max(most[1], S::load(row.vector(key) + S::kLanes));
      },
      [&](int64_t key, auto lanes) { most[0] = S::max(most[0], S::load_or(lowest, row.vector(key), lanes)); });
  constexpr float kLog2OfE = 1.44269504F;
  const float largest = S::maximum(S::max(most[0], most[1]));
  const __m512 top = S::set(largest);
  const __m512 scale = S::set(row.scale * kLog2OfE);
  __m512 sums[2] = {S::zero(), S::zero()};
  const auto exponential = [&](int64_t key, __m512& sum, auto lanes) {
    // Subtracted before anything is rounded: of scores of 1e9 the largest would not be exp(0) otherwise.
    const __m512 x = (S::load(row.vector(key)) - top) * scale;
    const __m512 p = S::first(power_of_two(x), lanes);
    sum = sum + p;
    return row.bits == nullptr ? p : S::keep(p, bits_at<S>(row.bits, key));
  };
  int64_t key = 0;
  for (; key + kTiledColumns <= row.visible; key += kTiledColumns) {
    const __m512 first = exponential(key, sums[0], Full{});
    S::store_two(row.p + key, first, exponential(key + S::kLanes, sums[1], Full{}));
  }
  for (; key < row.visible; key += S::kLanes) {
    const Part lanes{static_cast<int>(smaller(row.visible - key, S::kLanes))};
    S::store(row.p + key, exponential(key, sums[0], lanes));
  }
  for (; key < row.keys; key += S::kLanes) S::store(row.p + key, S::zero());
  return {largest * row.scale, S::sum(sums[0] + sums[1])};
}

// Row i of results is multiplied by scale / sums.sum[i].
inline void store_results(const float* results, float scale, const BlockSums& sums, const Rows<BFloat16>& to) {
  using S = Avx512Bf16;
  for (int64_t i = 0; i < to.count; ++i) {
    const __m512 factor = S::set(scale / sums.sum[i]);
    const auto product = [&](int64_t d) {
      const int64_t at = (d / kTiledColumns * kTiledRows + i) * kTiledColumns + d % kTiledColumns;
      return S::load(results + at) * factor;
    };
    BFloat16* const row = to.data + i * to.stride;
    for_each_two_vectors<S>(
        to.dim, [&](int64_t d) { S::store_two(row + d, product(d), product(d + S::kLanes)); },
        [&](int64_t d, auto lanes) { S::store(row + d, product(d), lanes); });
  }
}

// Some heads of a sequence.
template <class Tiles>
class TiledAttentionForward {
 public:
  TiledAttentionForward(const AttentionForward<BFloat16>& args, const KeepRule& rule, const AttentionHeads& heads,
                        float* scratch)
      : args_(args), rule_(rule), heads_(heads), sizes_(heads.length, args.shape.head_dim), w_(sizes_, scratch) {}

  void run() {
    for (int64_t head = heads_.begin; head < heads_.end; ++head) {
      const AttentionItem item = heads_.item(head);
      prefetch_next_head(args_, item);
      const auto out = rows_of(args_.out, args_.out_stride, item);
      prefetch_rows(out.data, out.stride, out.count, out.dim);
      pack_keys(rows_of(args_.k, args_.qkv_stride, item), w_.keys);
      pack_values(rows_of(args_.v, args_.qkv_stride, item), w_.values);
      for (int64_t first = 0; first < item.length; first += kQueryBlock) {
        const QueryBlock block = query_block(args_.shape, item.length, first);
        compute_scores(item, block);
        const BlockSums sums = compute_probabilities(item, block);
        compute_results(item, block, sums);
      }
    }
  }

 private:
  static int64_t key_steps(const QueryBlock& block) { return (block.keys + kTiledColumns - 1) / kTiledColumns; }

  template <class T>
  Rows<T> rows_of(T* data, int64_t stride, const AttentionItem& item) const {
    return {data + item.first_token * stride + item.head * args_.shape.head_dim, stride, item.length,
            args_.shape.head_dim};
  }

  void compute_scores(const AttentionItem& item, const QueryBlock& block) {
    const int64_t query_row = TiledAttentionSizes::row(sizes_.dim_steps);
    const auto q = rows_of(args_.q, args_.qkv_stride, item);
    for (int64_t row = 0; row < block.rows; row += kTileSide) {
      pack_contiguous_rows({q.data + (block.first + row) * q.stride, q.stride, true},
                           {smaller(kTileSide, block.rows - row), query_row, q.dim}, 0, sizes_.dim_steps * kStepUnits,
                           w_.queries + row * query_row);
    }
    multiply_panels(tiles_, {.a = w_.queries,
                             .a_row = query_row,
                             .rows = block.rows,
                             .steps = sizes_.dim_steps,
                             .b = w_.keys,
                             .b_panel = sizes_.dim_steps * kStepFloats,
                             .panels = key_steps(block),
                             .to = w_.scores,
                             .pitch = TiledAttentionSizes::kScores});
  }

  BlockSums compute_probabilities(const AttentionItem& item, const QueryBlock& block) const {
    if (rule_.active) fill_keep_bits<Avx512Bf16>(rule_, item, block, sizes_.bits_row, w_.bits);
    BlockSums sums;
    const int64_t p_row = 2 * TiledAttentionSizes::row(sizes_.key_steps);
    for (int64_t i = 0; i < kQueryBlock; ++i) {
      RowSum result{0.0F, 1.0F};
      if (i < block.rows) {
        result = exp_row_to_bfloat16({.scores = w_.scores + i * kTiledColumns,
                                      .visible = block.last_key(args_.shape, i),
                                      .keys = key_steps(block) * kTiledColumns,
                                      .scale = args_.shape.scale,
                                      .bits = rule_.active ? w_.bits + i * sizes_.bits_row : nullptr,
                                      .p = reinterpret_cast<BFloat16*>(w_.probabilities) + i * p_row});
      }
      sums.largest[i] = result.largest;
      sums.sum[i] = result.sum;
    }
    return sums;
  }

  void compute_results(const AttentionItem& item, const QueryBlock& block, const BlockSums& sums) {
    multiply_panels(tiles_, {.a = w_.probabilities,
                             .a_row = TiledAttentionSizes::row(sizes_.key_steps),
                             .rows = block.rows,
                             .steps = key_steps(block),
                             .b = w_.values,
                             .b_panel = sizes_.key_steps * kStepFloats,
                             .panels = sizes_.dim_steps,
                             .to = w_.results,
                             .pitch = kTileFloats});
    auto out = rows_of(args_.out, args_.out_stride, item);
    out.data += block.first * out.stride;
    out.count = block.rows;
    store_results(w_.results, rule_.scale, sums, out);
    const int64_t token = item.first_token + block.first;
    store_lse<Avx512Bf16>(sums, block.rows, args_.lse + token * args_.shape.num_heads + item.head,
                          args_.shape.num_heads);
  }

  const AttentionForward<BFloat16>& args_;
  const KeepRule& rule_;
  const AttentionHeads& heads_;
  const TiledAttentionSizes sizes_;
  const TiledAttentionScratch w_;
  Tiles tiles_;
};

template <class Tiles>
void tiled_attention_forward(const AttentionForward<BFloat16>& args, const KeepRule& rule, const AttentionHeads& heads,
                             float* scratch) {
  TiledAttentionForward<Tiles>(args, rule, heads, scratch).run();
}

// The backward pass is that of vectors.
template <class Tiles>
constexpr AttentionRung<BFloat16> tiled_attention_rung(Isa isa) {
  return {isa, &tiled_attention_forward_scratch, &attention_backward_scratch<Avx512Bf16>,
          &tiled_attention_forward<Tiles>, &for_each_head<&attention_backward_item<Avx512Bf16, BFloat16>>};
}

}  // namespace
}  // namespace strake::kernels
