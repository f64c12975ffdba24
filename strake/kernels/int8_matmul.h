#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strake/core/cpu_features.h"
#include "strake/kernels/bfloat16.h"
#include "strake/kernels/bias_activation.h"
#include "strake/kernels/cache_blocks.h"
#include "strake/kernels/scratch.h"
#include "strake/kernels/thread_part.h"

// Linear layers in int8. Both operands are quantized symmetrically, without zero points: weights once, with a scale for
// each output column, activations by quantize_rows() or in the product, with a scale for each row (the scheme of
// Dettmers et al., "LLM.int8()", 2022, section 2, without its outliers). Sums of products are exact 32-bit integers, so
// that their order does not matter: an element of the result depends on its row, its column and the depth alone, and
// all rungs give the same bits, but for an activation, which the reference computes with the standard library, and for
// denormal numbers of bf16, which AMX stores as 0.
//
// A row's largest magnitude becomes 127: scale = largest / 127, q = x times (127 / largest), rounded to nearest even
// (of a row once, by a fused multiply-add; of a column after the product). A row or column whose largest magnitude is
// below kLeastMagnitude is taken as 0. The result is activation(sum times (scale of the row times scale of the column)
// + bias), rounded to Out once.
namespace strake::kernels {

inline constexpr int64_t kMostInt8Depth = 131'072;  // 127 * 127 times this is below 2^31
inline constexpr float kLeastMagnitude = 1e-30F;    // 127 divided by it is finite

// The weight of a linear layer, quantized and packed once in the layout of one rung. Immutable, so threads may share
// it.
class QuantizedMatrix {
 public:
  // weight: [columns, depth], as a linear layer stores it. Uses the calling thread's number of threads. Errors:
  // kNumeric if a number is not finite, with the column; kInternal for a depth above kMostInt8Depth.
  QuantizedMatrix(const float* weight, int64_t depth, int64_t columns, Isa highest = best_isa());
  // On the memory() of a matrix with these sizes and this layout(), which may have gone through a file. Error (kConfig)
  // if it has another size.
  QuantizedMatrix(SharedFloats memory, int64_t depth, int64_t columns, Isa highest = best_isa());

  // The same matrix, multiplied in other blocks; shares its memory.
  QuantizedMatrix in_blocks(const CacheBlocks& blocks) const;
  const CacheBlocks& blocks() const { return blocks_; }

  // Names the rung and how it packs, as PackedMatrix::layout().
  static std::string layout(Isa highest = best_isa());

  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  int64_t bytes() const { return memory_.bytes(); }
  Isa isa() const { return isa_; }
  const int8_t* panels() const { return reinterpret_cast<const int8_t*>(memory_.data()); }
  const float* scales() const { return memory_.data() + scales_; }  // [columns], padded to whole panels
  // [columns], padded: what sums start from where activations are packed with an offset, else 0.
  const int32_t* corrections() const { return reinterpret_cast<const int32_t*>(memory_.data() + corrections_); }
  const SharedFloats& memory() const { return memory_; }  // panels, scales and corrections; whole cache lines

 private:
  int64_t depth_;
  int64_t columns_;
  Isa isa_;
  int64_t scales_;  // where they begin
  int64_t corrections_;
  SharedFloats memory_;
  CacheBlocks blocks_;
};

// Rows of activations in int8, each on cache lines and filled up with 0 to whole ones. A scale is NaN where a number of
// its row was not finite. Products read whole tiles of rows: there is memory for whole_tiles() of them.
struct QuantizedRows {
  int8_t* data = nullptr;   // [rows, depth]
  int64_t stride = 0;       // bytes, quantized_stride(depth)
  float* scales = nullptr;  // [rows]

  QuantizedRows from(int64_t row) const { return {data + row * stride, stride, scales + row}; }
};

inline constexpr int64_t kRowsTogether = 32;
constexpr int64_t whole_tiles(int64_t rows) { return (rows + kRowsTogether - 1) / kRowsTogether * kRowsTogether; }

// An odd number of cache lines, as row_stride().
constexpr int64_t quantized_stride(int64_t depth) { return row_stride<int8_t>(depth); }

struct RowsToQuantize {
  const BFloat16* data;
  int64_t stride;
  int64_t rows;
  int64_t depth;
  int64_t rows_after = 0;  // that lie behind them and are wanted next: they are asked for
};

// Cheap while the rows are in a near cache, that is just behind what wrote them. All rungs give the same bits.
void quantize_rows(const RowsToQuantize& from, const QuantizedRows& to, Isa highest = best_isa());

// C[rows, columns] = activation(A[rows, depth] B + bias), where B is a QuantizedMatrix. Rows of A and C are contiguous.
template <typename Out>
struct Int8Matmul {
  int64_t rows = 0;
  const BFloat16* a = nullptr;  // quantized by the product, block by block
  int64_t a_stride = 0;
  QuantizedRows quantized = {};  // instead of `a`, where it has data
  Out* c = nullptr;
  int64_t c_stride = 0;
  const float* bias = nullptr;  // [columns], or null: none
  std::optional<Activation> activation = std::nullopt;
};

inline constexpr int64_t kAllRowsFinite = -1;

// Out is BFloat16 or float. Computed by the calling thread alone and without an allocation: `scratch` is 64-byte
// aligned and has int8_matmul_scratch(rows, b) floats, where args.rows is at most `rows`. With `part` one of the parts
// that threads share, each with scratch of its own: together they compute all of the product. Returns the first row of
// A that holds infinity or NaN, which has no scale and whose results are NaN before the activation; or kAllRowsFinite,
// also where such a row is in other parts. Error (kInternal) for strides that are too small.
template <typename Out>
int64_t int8_matmul_on_thread(const Int8Matmul<Out>& args, const QuantizedMatrix& b, float* scratch,
                              const ThreadPart& part = {});
int64_t int8_matmul_scratch(int64_t rows, const QuantizedMatrix& b);

}  // namespace strake::kernels
