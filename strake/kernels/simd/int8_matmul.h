#pragma once

#include "strake/kernels/int8_matmul_rungs.h"
#include "strake/kernels/simd/bias_activation.h"
#include "strake/kernels/simd/lanes.h"
#include "strake/kernels/simd/matmul_pack.h"

// A block of rows is quantized and packed, then multiplied by one panel of B after the other, tile by tile. U is what a
// rung's instructions take at a time: a unit is kDepthPerUnit numbers that follow each other in depth, in 32 bits of a
// packed row. A Tiler packs and multiplies tiles.
namespace strake::kernels {
namespace {

constexpr int kInt8TileVectors = 2;  // of B, side by side
template <class U>
constexpr int64_t kInt8TileColumns = int64_t{kInt8TileVectors} * U::Simd::kLanes;

constexpr int64_t kPackedBlockBytes = int64_t{256} << 10;  // of A at a time, if not said otherwise
constexpr int64_t kRowAlign = 64;                          // bytes of quantized rows that are read at once, at most

struct Int8TileProduct {
  const float* a;             // a tile's rows, as Tiler::pack leaves them
  const int8_t* b;            // [units, kInt8TileColumns] units
  const int32_t* first_sums;  // [kInt8TileColumns]
  int64_t units;
  int32_t* sums;  // [rows, kInt8TileColumns]
};

// All sums of the tile are in registers meanwhile.
template <class U, int kRows>
[[gnu::noinline]] void int8_tile(const Int8TileProduct& product) {
  using S = typename U::Simd;
  using Int = typename S::Int;
  const float* a = product.a;
  const int8_t* b = product.b;
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

// Tiles of vectors. A tile's rows are packed as [units, rows] units.
template <class U>
struct VectorTiler {
  static int64_t units_per_row(int64_t units) { return units; }
  static void pack(const int8_t* quantized, int64_t row_bytes, int64_t rows, int64_t units, float* to) {
    const PanelSource<int8_t> from{.data = quantized, .stride = row_bytes, .along_depth = true};
    pack_lines_along<U>(from, {.lines = rows, .pitch = rows, .depth = row_bytes}, 0, units, to);
  }
  static void multiply(int64_t rows, const Int8TileProduct& product) { int8_tile_of_rows<U>(rows, product); }
};

// Where a tile's sums go.
template <typename Out>
struct Int8TileResult {
  const int32_t* sums;         // [rows, tile columns]
  const float* row_scales;     // [rows]
  const float* column_scales;  // [tile columns]
  const float* bias;           // [columns], or null
  Out* c;
  int64_t c_stride;
  int64_t rows;
  int64_t columns;
};

template <class U, Activation kKind, typename Out>
[[gnu::noinline]] void store_dequantized(const Int8TileResult<Out>& tile) {
  using S = typename U::Simd;
  const int32_t* sums = tile.sums;
  for (int64_t r = 0; r < tile.rows; ++r, sums += kInt8TileColumns<U>) {
    const typename S::Float row_scale = S::set(tile.row_scales[r]);
    Out* const c = tile.c + r * tile.c_stride;
    for_each_vector<S>(tile.columns, [&](int64_t j, auto lanes) {
      const typename S::Float bias = tile.bias == nullptr ? S::zero() : S::load(tile.bias + j, lanes);
      const typename S::Float value =
          S::fma(U::sums_as_float(sums + j), row_scale * S::load(tile.column_scales + j), bias);
      S::store(c + j, activate<S, kKind, Out>(value), lanes);
    });
  }
}

template <class U, typename Out>
void finish_int8_tile(const Int8TileResult<Out>& tile, const std::optional<Activation>& activation) {
  switch (activation.value_or(Activation::kIdentity)) {
    case Activation::kGelu:
      return store_dequantized<U, Activation::kGelu>(tile);
    case Activation::kGeluTanh:
      return store_dequantized<U, Activation::kGeluTanh>(tile);
    case Activation::kRelu:
      return store_dequantized<U, Activation::kRelu>(tile);
    case Activation::kSilu:
      return store_dequantized<U, Activation::kSilu>(tile);
    case Activation::kTanh:
      return store_dequantized<U, Activation::kTanh>(tile);
    case Activation::kIdentity:
      return store_dequantized<U, Activation::kIdentity>(tile);
  }
}

constexpr uint32_t kInfinityBits = 0x7F80;  // of a BFloat16's magnitude

// Quantizes a row of `depth` numbers and fills it with 0 to a multiple of kRowAlign. Returns its scale, NaN if a number
// is not finite.
template <class U>
float quantize_row(const BFloat16* row, int64_t depth, int8_t* to) {
  const uint32_t bits = U::largest_magnitude(row, depth);
  const float largest = __builtin_bit_cast(float, bits << 16);
  if (bits >= kInfinityBits || largest < kLeastMagnitude) {
    for (int64_t k = 0; k < round_up(depth, kRowAlign); ++k) to[k] = 0;
    return bits >= kInfinityBits ? __builtin_nanf("") : 0.0F;
  }
  U::quantize(row, depth, 127.0F / largest, to);
  for (int64_t k = depth; k < round_up(depth, kRowAlign); ++k) to[k] = 0;
  return largest / 127.0F;
}

// How a product's scratch is cut, in floats.
template <class U, class Tiler>
struct Int8Scratch {
  Int8Scratch(int64_t rows, const QuantizedMatrix& b)
      : units(int8_units<U>(b.depth())), row_units(Tiler::units_per_row(units)) {
    const int64_t tiles = (rows + U::kTileRows - 1) / U::kTileRows;
    const int64_t tile_bytes = U::kTileRows * (row_units > 0 ? row_units : 1) * 4;
    block_rows = smaller(tiles, pieces_in(b.blocks().rows_bytes, kPackedBlockBytes, tile_bytes)) * U::kTileRows;
    row_bytes = round_up(b.depth(), kRowAlign);
    scales = round_up(block_rows * row_units + U::Simd::kLanes, 16);
    quantized = scales + round_up(block_rows, 16);
    sums = quantized + U::kTileRows * row_bytes / 4;
    total = sums + U::kTileRows * kInt8TileColumns<U>;
  }
  int64_t units, row_units, block_rows, row_bytes;
  int64_t scales, quantized, sums, total;
};

template <class U, class Tiler, typename Out>
class Int8Product {
 public:
  explicit Int8Product(const Int8MatmulPart<Out>& part)
      : part_(part),
        cut_(part.args.rows, part.b),
        packed_(part.scratch),
        scales_(part.scratch + cut_.scales),
        quantized_(reinterpret_cast<int8_t*>(part.scratch + cut_.quantized)),
        sums_(reinterpret_cast<int32_t*>(part.scratch + cut_.sums)) {}

  int64_t run() {
    const int64_t tiles = (part_.args.rows + U::kTileRows - 1) / U::kTileRows;
    const int64_t step = equal_pieces(tiles, cut_.block_rows / U::kTileRows) * U::kTileRows;
    for (int64_t row = 0; row < part_.args.rows; row += step) {
      const int64_t end = smaller(row + step, part_.args.rows);
      pack_rows(row, end);
      for (int64_t column = part_.column_begin; column < part_.column_end; column += kInt8TileColumns<U>) {
        multiply_panel(row, end, column);
      }
    }
    return first_bad_;
  }

 private:
  void pack_rows(int64_t begin, int64_t end) {
    const int64_t depth = part_.b.depth();
    float* to = packed_;
    for (int64_t row = begin; row < end; row += U::kTileRows) {
      const int64_t rows = smaller(U::kTileRows, end - row);
      for (int64_t r = 0; r < rows; ++r) {
        const float scale =
            quantize_row<U>(part_.args.a + (row + r) * part_.args.a_stride, depth, quantized_ + r * cut_.row_bytes);
        if (scale != scale && first_bad_ == kAllRowsFinite) first_bad_ = row + r;
        scales_[row - begin + r] = scale;
      }
      tiler_.pack(quantized_, cut_.row_bytes, rows, cut_.units, to);
      to += rows * cut_.row_units;
    }
  }

  void multiply_panel(int64_t begin, int64_t end, int64_t column) {
    const Int8Matmul<Out>& args = part_.args;
    const int8_t* const b = part_.b.panels() + column * cut_.units * U::kDepthPerUnit;
    const int64_t columns = smaller(kInt8TileColumns<U>, part_.b.columns() - column);
    const float* a = packed_;
    for (int64_t row = begin; row < end; row += U::kTileRows) {
      const int64_t rows = smaller(U::kTileRows, end - row);
      tiler_.multiply(rows, {a, b, part_.b.corrections() + column, cut_.units, sums_});
      finish_int8_tile<U, Out>({.sums = sums_,
                                .row_scales = scales_ + (row - begin),
                                .column_scales = part_.b.scales() + column,
                                .bias = args.bias == nullptr ? nullptr : args.bias + column,
                                .c = args.c + row * args.c_stride + column,
                                .c_stride = args.c_stride,
                                .rows = rows,
                                .columns = columns},
                               args.activation);
      a += rows * cut_.row_units;
    }
  }

  const Int8MatmulPart<Out>& part_;
  Int8Scratch<U, Tiler> cut_;
  Tiler tiler_;
  float* packed_;
  float* scales_;
  int8_t* quantized_;
  int32_t* sums_;
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
          &int8_multiply<U, Tiler, Out>};
}

}  // namespace
}  // namespace strake::kernels
