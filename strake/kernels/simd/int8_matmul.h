#pragma once

#include "strake/kernels/int8_matmul_rungs.h"
#include "strake/kernels/simd/int8_store.h"
#include "strake/kernels/simd/lanes.h"
#include "strake/kernels/simd/matmul_pack.h"
#include "strake/kernels/simd/panel_ahead.h"

// A block of rows is quantized, if it is not, and packed, then multiplied by one panel of B after the other, tile by
// tile. U is what a rung's instructions take at a time: a unit is kDepthPerUnit numbers that follow each other in
// depth, in 32 bits of a packed row. A Tiler packs and multiplies tiles.
namespace strake::kernels {
namespace {

constexpr int64_t kPackedBlockBytes = int64_t{256} << 10;  // of A at a time, if not said otherwise

struct Int8TileProduct {
  const float* a;             // a tile's rows, as Tiler::pack leaves them
  const int8_t* b;            // [units, kInt8TileColumns] units
  const int32_t* first_sums;  // [kInt8TileColumns]
  int64_t units;
  int32_t* sums;        // [rows, kInt8TileColumns]
  Ahead<int8_t> ahead;  // of B
};

// All sums of the tile are in registers meanwhile.
template <class U, int kRows>
[[gnu::noinline]] void int8_tile(const Int8TileProduct& product) {
  using S = typename U::Simd;
  using Int = typename S::Int;
  const float* a = product.a;
  const int8_t* b = product.b;
  const int8_t* next = product.ahead.next;
  int64_t until_next = product.ahead.every;
  Int sum[kRows][kInt8TileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kInt8TileVectors; ++v) sum[r][v] = U::load_sums(product.first_sums + v * S::kLanes);
  }
  constexpr int64_t kVectorBytes = S::kLanes * U::kDepthPerUnit;
  for (int64_t units = product.units; units > 0; --units, a += kRows, b += kInt8TileVectors * kVectorBytes) {
    Int bs[kInt8TileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kInt8TileVectors; ++v) bs[v] = U::load_columns(b + v * kVectorBytes);
    if (--until_next == 0) {
#pragma GCC unroll 2
      for (int64_t i = 0; i < kInt8TileVectors * kVectorBytes; i += 64) __builtin_prefetch(next + i, 0, 2);
      next += kInt8TileVectors * kVectorBytes;
      until_next = product.ahead.every;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Int factor = U::broadcast(a + r);
#pragma GCC unroll 2
      for (int v = 0; v < kInt8TileVectors; ++v) sum[r][v] = U::multiply_add(factor, bs[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kInt8TileVectors; ++v) {
      U::store_sums(product.sums + (r * kInt8TileVectors + v) * S::kLanes, sum[r][v]);
    }
  }
}

template <class U, int kRows = U::kTileRows>
inline void int8_tile_of_rows(int64_t rows, const Int8TileProduct& product) {
  if (rows == kRows) return int8_tile<U, kRows>(product);
  if constexpr (kRows > 1) int8_tile_of_rows<U, kRows - 1>(rows, product);
}

template <class U>
inline int64_t int8_units(int64_t depth) {
  return round_up(depth, U::kDepthStep) / U::kDepthPerUnit;
}

// A block of rows, packed, or quantized where a Tiler multiplies those.
struct Int8Rows {
  const float* a;
  int64_t rows;
  int64_t units;
};
struct Int8Panel {
  const int8_t* b;
  const int32_t* first_sums;  // [columns of a tile]
  const int8_t* next;         // the panel after it, or null
  int64_t column;
};
// Rows of sums that are whole, in a block and in a panel that begins at the column.
struct Int8Sums {
  const int32_t* sums;  // [rows, columns of a tile]
  int64_t row;
  int64_t column;
  int64_t rows;
};

// Where the sums of a packed block go.
template <class U, typename T>
struct Int8Results {
  using Out = T;
  const Int8Matmul<Out>& args;
  const QuantizedMatrix& b;
  const float* row_scales;  // of the block
  int64_t first_row = 0;    // of the block

  Int8TileResult<Out> of(const Int8Sums& sums) const {
    return {.sums = sums.sums,
            .row_scales = row_scales + sums.row,
            .column_scales = b.scales() + sums.column,
            .bias = args.bias == nullptr ? nullptr : args.bias + sums.column,
            .c = args.c + (first_row + sums.row) * args.c_stride + sums.column,
            .c_stride = args.c_stride,
            .rows = sums.rows,
            .columns = smaller(kInt8TileColumns<U>, b.columns() - sums.column)};
  }
};

// Tiles of vectors. A tile's rows are packed as [units, rows] units.
template <class U>
struct VectorTiler {
  static constexpr int64_t kSums = U::kTileRows * kInt8TileColumns<U>;
  static constexpr bool kPacks = true;

  static void pack(const QuantizedRows& from, int64_t rows, int64_t units, float* to) {
    const PanelSource<int8_t> source{.data = from.data, .stride = from.stride, .along_depth = true};
    pack_lines_along<U>(source, {.lines = rows, .pitch = rows, .depth = from.stride}, 0, units, to);
  }

  template <Activation kKind, class Results>
  class Walk {
   public:
    Walk(int32_t* sums, const Results& results) : sums_(sums), results_(results) {}
    void multiply(const Int8Rows& block, const Int8Panel& panel) {
      const float* a = block.a;
      PanelAhead<int8_t> ahead(panel.next, block.units, kInt8TileColumns<U> * U::kDepthPerUnit,
                               (block.rows + U::kTileRows - 1) / U::kTileRows);
      for (int64_t row = 0; row < block.rows; row += U::kTileRows) {
        const int64_t rows = smaller(U::kTileRows, block.rows - row);
        int8_tile_of_rows<U>(rows, {a, panel.b, panel.first_sums, block.units, sums_, ahead.for_next_tile()});
        store_dequantized<U, kKind>(results_.of({sums_, row, panel.column, rows}));
        a += rows * block.units;
      }
    }
    void finish_all() {}

   private:
    int32_t* const sums_;
    const Results& results_;
  };
};

constexpr uint32_t kInfinityBits = 0x7F80;  // of a BFloat16's magnitude
// Rows may come from the last-level cache, and a processor foresees no more than its page.
constexpr int64_t kRowsAhead = 2;

// Quantizes a row of `depth` numbers and fills it up with 0. Returns its scale, NaN if a number
// is not finite. `soon` is a row to be asked for meanwhile: its first half while the largest magnitude is looked for,
// its second half while numbers are quantized, so that memory is never without a request.
//
// U::largest_magnitude(x, count, soon) gives the bits of the largest magnitude: they have the order of the numbers, and
// NaN comes last.
template <class U>
float quantize_row(const BFloat16* row, int64_t depth, int8_t* to, const BFloat16* soon) {
  const uint32_t bits = U::largest_magnitude(row, depth, soon);
  const float largest = __builtin_bit_cast(float, bits << 16);
  if (bits >= kInfinityBits || largest < kLeastMagnitude) {
    for (int64_t k = 0; k < filled_bytes(depth); ++k) to[k] = 0;
    return bits >= kInfinityBits ? __builtin_nanf("") : 0.0F;
  }
  U::quantize(row, depth, 127.0F / largest, to, soon + depth / 2);
  for (int64_t k = depth; k < filled_bytes(depth); ++k) to[k] = 0;
  return largest / 127.0F;
}

template <class U>
void quantize_rows_of(const RowsToQuantize& from, const QuantizedRows& to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    const BFloat16* const x = from.data + row * from.stride;
    const BFloat16* const soon = x + smaller(kRowsAhead, from.rows - 1 - row + from.rows_after) * from.stride;
    to.scales[row] = quantize_row<U>(x, from.depth, to.data + row * to.stride, soon);
  }
}

// How a product's scratch is cut, in floats: packed rows, quantized ones and the scales of a block, the sums of tiles.
template <class U, class Tiler>
struct Int8Scratch {
  Int8Scratch(int64_t rows, const QuantizedMatrix& b)
      : units(int8_units<U>(b.depth())), row_bytes(quantized_stride(b.depth())) {
    const int64_t tiles = (rows + U::kTileRows - 1) / U::kTileRows;
    const int64_t unit_bytes = Tiler::kPacks ? units * 4 : row_bytes;
    const int64_t tile_bytes = U::kTileRows * (unit_bytes > 0 ? unit_bytes : 4);
    block_rows = smaller(tiles, pieces_in(b.blocks().rows_bytes, kPackedBlockBytes, tile_bytes)) * U::kTileRows;
    quantized = Tiler::kPacks ? round_up(block_rows * units + U::Simd::kLanes, 16) : 0;
    scales = quantized + (Tiler::kPacks ? U::kTileRows : block_rows) * row_bytes / 4;
    sums = scales + round_up(block_rows, 16);
    total = sums + Tiler::kSums;
  }
  int64_t units, row_bytes, block_rows;
  int64_t quantized, scales, sums, total;
};

template <class U, class Tiler, typename Out>
class Int8Product {
 public:
  explicit Int8Product(const Int8MatmulPart<Out>& part)
      : part_(part),
        cut_(part.args.rows, part.b),
        in_scratch_{reinterpret_cast<int8_t*>(part.scratch + cut_.quantized), cut_.row_bytes,
                    part.scratch + cut_.scales},
        results_{part.args, part.b, nullptr} {}

  int64_t run() {
    return with_activation(part_.args.activation.value_or(Activation::kIdentity),
                           [this](auto kind) { return this->template run_with<decltype(kind)::kKind>(); });
  }

 private:
  using Results = Int8Results<U, Out>;

  template <Activation kKind>
  int64_t run_with() {
    auto* const sums = reinterpret_cast<int32_t*>(part_.scratch + cut_.sums);
    typename Tiler::template Walk<kKind, Results> walk(sums, results_);
    const int64_t tiles = (part_.args.rows + U::kTileRows - 1) / U::kTileRows;
    const int64_t step = equal_pieces(tiles, cut_.block_rows / U::kTileRows) * U::kTileRows;
    for (int64_t begin = 0; begin < part_.args.rows; begin += step) {
      const int64_t end = smaller(begin + step, part_.args.rows);
      const Int8Rows rows = take_rows(begin, end);
      results_.first_row = begin;
      for (int64_t column = part_.column_begin; column < part_.column_end; column += kInt8TileColumns<U>) {
        walk.multiply(rows, panel_at(column));
      }
      walk.finish_all();
    }
    return first_bad_;
  }

  bool quantizes() const { return part_.args.quantized.data == nullptr; }

  // The block as the tiler multiplies it.
  Int8Rows take_rows(int64_t begin, int64_t end) {
    results_.row_scales = quantizes() ? in_scratch_.scales : part_.args.quantized.scales + begin;
    const float* rows = part_.scratch;
    if constexpr (Tiler::kPacks) {
      float* to = part_.scratch;
      for (int64_t row = begin; row < end; row += U::kTileRows) {
        const int64_t of_tile = smaller(U::kTileRows, end - row);
        const QuantizedRows place{in_scratch_.data, in_scratch_.stride, in_scratch_.scales + row - begin};
        Tiler::pack(quantized(row, of_tile, place), of_tile, cut_.units, to);
        to += of_tile * cut_.units;
      }
    } else {
      rows = reinterpret_cast<const float*>(quantized(begin, end - begin, in_scratch_).data);
    }
    for (int64_t row = begin; row < end && first_bad_ == kAllRowsFinite; ++row) {
      const float scale = results_.row_scales[row - begin];
      if (scale != scale) first_bad_ = row;
    }
    return {rows, end - begin, cut_.units};
  }

  // Rows of A in int8: where they are, or quantized to this place.
  QuantizedRows quantized(int64_t row, int64_t rows, const QuantizedRows& place) const {
    const Int8Matmul<Out>& args = part_.args;
    if (!quantizes()) return args.quantized.from(row);
    quantize_rows_of<U>({.data = args.a + row * args.a_stride,
                         .stride = args.a_stride,
                         .rows = rows,
                         .depth = part_.b.depth(),
                         .rows_after = args.rows - row - rows},
                        place);
    return place;
  }

  Int8Panel panel_at(int64_t column) const {
    const int64_t bytes = kInt8TileColumns<U> * cut_.units * U::kDepthPerUnit;
    const int8_t* const b = part_.b.panels() + column / kInt8TileColumns<U> * bytes;
    const bool is_last = column + kInt8TileColumns<U> >= part_.column_end;
    return {b, part_.b.corrections() + column, is_last ? nullptr : b + bytes, column};
  }

  const Int8MatmulPart<Out>& part_;
  Int8Scratch<U, Tiler> cut_;
  QuantizedRows in_scratch_;  // of a block, or of a tile that is packed from them
  Results results_;
  int64_t first_bad_ = kAllRowsFinite;
};

template <class U, class Tiler>
int64_t int8_scratch(int64_t rows, const QuantizedMatrix& b) {
  return Int8Scratch<U, Tiler>(rows, b).total;
}

template <class U, class Tiler, typename Out>
int64_t int8_multiply(const Int8MatmulPart<Out>& part) {
  return Int8Product<U, Tiler, Out>(part).run();
}

template <class U, typename Out, class Tiler = VectorTiler<U>>
constexpr Int8MatmulRung<Out> int8_rung(Isa isa) {
  return {isa,
          {U::kTileRows, kInt8TileColumns<U>, U::kDepthPerUnit, U::kDepthStep, U::kOffset},
          &int8_scratch<U, Tiler>,
          &int8_multiply<U, Tiler, Out>,
          &quantize_rows_of<U>};
}

}  // namespace
}  // namespace strake::kernels
