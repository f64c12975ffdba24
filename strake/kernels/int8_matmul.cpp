#include "strake/kernels/int8_matmul.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/int8_matmul_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

template <typename Out>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<Int8MatmulRung<BFloat16>, 5> kLadder<BFloat16>{
    &amx::kInt8Matmul, &avx512::kInt8MatmulVnni, &avx512::kInt8Matmul, &avx2::kInt8Matmul, &reference::kInt8Matmul};
template <>
constexpr Ladder<Int8MatmulRung<float>, 5> kLadder<float>{&amx::kInt8MatmulToFloat, &avx512::kInt8MatmulVnniToFloat,
                                                          &avx512::kInt8MatmulToFloat, &avx2::kInt8MatmulToFloat,
                                                          &reference::kInt8MatmulToFloat};

int64_t pieces_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// The largest magnitude; infinity or NaN if there is one.
float largest_magnitude(const float* x, int64_t count) {
  uint32_t largest = 0;  // the bits of magnitudes have the order of the numbers, and NaN comes last
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU);
  return std::bit_cast<float>(largest);
}

// To nearest even, of |x| < 2^22: the lowest bits of x + 1.5 * 2^23 are the whole number.
int32_t rounded(float x) {
  constexpr float kShift = 12582912.0F;
  return std::bit_cast<int32_t>(x + kShift) - std::bit_cast<int32_t>(kShift);
}

// One column into its place in the panels. Returns the sum of the quantized numbers.
int32_t pack_column(const float* from, int64_t depth, float inverse, const Int8Tile& tile, int8_t* to) {
  int32_t sum = 0;
  for (int64_t unit = 0; unit < depth; unit += tile.depth_per_unit, to += tile.columns * tile.depth_per_unit) {
    const int64_t count = std::min<int64_t>(tile.depth_per_unit, depth - unit);
    for (int64_t k = 0; k < count; ++k) {
      const int32_t q = rounded(from[unit + k] * inverse);
      sum += q;
      to[k] = static_cast<int8_t>(q);
    }
  }
  return sum;
}

constexpr int kLayoutVersion = 1;  // raise it where numbers go elsewhere with the same tile

// How a matrix's memory is cut.
struct Cut {
  Cut(const Int8Tile& tile, int64_t depth, int64_t columns)
      : panels(pieces_of(columns, tile.columns)),
        panel_bytes(pieces_of(depth, tile.depth_step) * tile.depth_step * tile.columns),
        scales(whole_lines(pieces_of(panels * panel_bytes, sizeof(float)))),
        corrections(scales + whole_lines(panels * tile.columns)),
        floats(corrections + whole_lines(panels * tile.columns)) {}
  int64_t panels, panel_bytes;
  int64_t scales, corrections, floats;
};

Cut cut(const Int8Tile& tile, int64_t depth, int64_t columns) {
  require(depth >= 0 && depth <= kMostInt8Depth && columns >= 0, ErrorKind::kInternal, "int8 matrix of [{}, {}]", depth,
          columns);
  return {tile, depth, columns};
}

SharedFloats quantize(const float* weight, int64_t depth, int64_t columns, const Int8Tile& tile) {
  const Cut parts = cut(tile, depth, columns);
  AlignedFloats memory(parts.floats);
  std::memset(memory.data(), 0, static_cast<size_t>(memory.bytes()));
  auto* const bytes = reinterpret_cast<int8_t*>(memory.data());
  float* const scales = memory.data() + parts.scales;
  auto* const corrections = reinterpret_cast<int32_t*>(memory.data() + parts.corrections);
  std::atomic<int64_t> not_finite{columns};
  parallel_for(parts.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin * tile.columns; column < std::min(columns, end * tile.columns); ++column) {
      const float largest = largest_magnitude(weight + column * depth, depth);
      // The first one, whichever thread sees it.
      for (int64_t seen = not_finite; !(largest < __builtin_inff()) && column < seen;) {
        if (not_finite.compare_exchange_weak(seen, column)) break;
      }
      if (!(largest < __builtin_inff()) || largest < kLeastMagnitude) continue;
      scales[column] = largest / 127.0F;
      const int64_t in_panel = column % tile.columns;
      const int32_t sum =
          pack_column(weight + column * depth, depth, 127.0F / largest, tile,
                      bytes + column / tile.columns * parts.panel_bytes + in_panel * tile.depth_per_unit);
      corrections[column] = -tile.offset * sum;
    }
  });
  require(not_finite == columns, ErrorKind::kNumeric, "int8: row {} of the weight holds infinity or NaN",
          not_finite.load());
  return SharedFloats(std::move(memory));
}

}  // namespace

QuantizedMatrix::QuantizedMatrix(const float* weight, int64_t depth, int64_t columns, Isa highest)
    : QuantizedMatrix(quantize(weight, depth, columns, pick(kLadder<BFloat16>, highest).tile), depth, columns,
                      highest) {}

QuantizedMatrix::QuantizedMatrix(SharedFloats memory, int64_t depth, int64_t columns, Isa highest)
    : depth_(depth), columns_(columns), isa_(pick(kLadder<BFloat16>, highest).isa), memory_(std::move(memory)) {
  const Cut parts = cut(pick(kLadder<BFloat16>, highest).tile, depth, columns);
  require(memory_.count() == parts.floats, ErrorKind::kConfig,
          "{} floats are not an int8 matrix of [{}, {}], which has {}", memory_.count(), depth, columns, parts.floats);
  scales_ = parts.scales;
  corrections_ = parts.corrections;
}

QuantizedMatrix QuantizedMatrix::in_blocks(const CacheBlocks& blocks) const {
  QuantizedMatrix other = *this;
  other.blocks_ = blocks;
  return other;
}

std::string QuantizedMatrix::layout(Isa highest) {
  const auto& rung = pick(kLadder<BFloat16>, highest);
  return fmt::format("{}, panels of {} columns, units of {} in steps of {}, offset {}, version {}", to_string(rung.isa),
                     rung.tile.columns, rung.tile.depth_per_unit, rung.tile.depth_step, rung.tile.offset,
                     kLayoutVersion);
}

void quantize_rows(const RowsToQuantize& from, const QuantizedRows& to, Isa highest) {
  require(from.stride >= from.depth && to.stride == quantized_stride(from.depth), ErrorKind::kInternal,
          "rows of {} numbers, {} apart, are quantized to rows {} bytes apart", from.depth, from.stride, to.stride);
  pick(kLadder<BFloat16>, highest).quantize(from, to);
}

template <typename Out>
int64_t int8_matmul_on_thread(const Int8Matmul<Out>& args, const QuantizedMatrix& b, float* scratch,
                              const ThreadPart& part) {
  const bool quantizes = args.quantized.data == nullptr;
  const bool holds_rows = quantizes ? args.a_stride >= b.depth() : args.quantized.stride == quantized_stride(b.depth());
  require(args.rows >= 0 && holds_rows && args.c_stride >= b.columns(), ErrorKind::kInternal,
          "int8 product of {} rows with strides {} and {} and B[{}, {}]", args.rows,
          quantizes ? args.a_stride : args.quantized.stride, args.c_stride, b.depth(), b.columns());
  if (args.rows == 0 || b.columns() == 0) return kAllRowsFinite;
  const auto& rung = pick(kLadder<Out>, b.isa());
  const Int8Tile& tile = rung.tile;
  const ThreadGrid grid(part.count, tile.rows, pieces_of(args.rows, tile.rows), pieces_of(b.columns(), tile.columns));
  if (part.index >= grid.parts()) return kAllRowsFinite;
  const int64_t first_row = grid.rows_of(part.index).begin * rung.tile.rows;
  const auto [panel_begin, panel_end] = grid.panels_of(part.index);
  Int8Matmul<Out> mine = args;
  mine.rows = std::min(args.rows, grid.rows_of(part.index).end * rung.tile.rows) - first_row;
  if (quantizes) {
    mine.a += first_row * args.a_stride;
  } else {
    mine.quantized = args.quantized.from(first_row);
  }
  mine.c += first_row * args.c_stride;
  const int64_t bad = rung.multiply({.args = mine,
                                     .b = b,
                                     .scratch = scratch,
                                     .column_begin = panel_begin * rung.tile.columns,
                                     .column_end = std::min(b.columns(), panel_end * rung.tile.columns)});
  return bad == kAllRowsFinite ? bad : first_row + bad;
}

int64_t int8_matmul_scratch(int64_t rows, const QuantizedMatrix& b) {
  return pick(kLadder<BFloat16>, b.isa()).scratch(rows, b);
}

template int64_t int8_matmul_on_thread(const Int8Matmul<BFloat16>&, const QuantizedMatrix&, float*, const ThreadPart&);
template int64_t int8_matmul_on_thread(const Int8Matmul<float>&, const QuantizedMatrix&, float*, const ThreadPart&);

}  // namespace strake::kernels
