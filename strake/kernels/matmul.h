#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strake/core/cpu_features.h"
#include "strake/kernels/bfloat16.h"
#include "strake/kernels/bias_activation.h"
#include "strake/kernels/cache_blocks.h"
#include "strake/kernels/scratch.h"
#include "strake/kernels/store.h"
#include "strake/kernels/thread_part.h"

// Matrix products C = A B of linear layers, with what follows a product done in its store. Both operands are packed
// into panels that the innermost loop reads in order (Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication"; BLIS).
//
// Sums are kept in fp32. Their order is fixed by the depth alone: the depth is cut into equal blocks of at most
// kDepthBlock units (matmul_rungs.h), a block is a chain of fused multiply-adds that starts at 0, and the blocks' sums
// are added in order. So an element of C depends on its row of A, its column of B and the depth, and on nothing else:
// not on its neighbours, the number of rows or columns, its place, or the number of threads. All fp32 kernels give the
// same bits, as do the bf16 kernels that widen to fp32. With AVX512-BF16 a unit is a pair of products and the
// instruction VDPBF16PS takes denormal numbers as 0, both in operands and in sums, so that these kernels' sums differ
// from the others' by about the rounding of an fp32 sum. AMX takes denormal numbers as 0, too, and stores none in bf16;
// there a unit is a pair, a block's units are added up 16 at a time, and each such sum is added to those before it,
// also across blocks.
namespace strake::kernels {

// Which neighbours of a matrix lie side by side in memory.
enum class Order { kRows, kColumns };

// Element (i, j) is at data[i * stride + j] if rows are contiguous, else at data[j * stride + i]: as kColumns, a stored
// matrix is read as its transpose.
template <typename T>
struct MatrixOperand {
  const T* data = nullptr;
  int64_t stride = 0;
  Order order = Order::kRows;
};

// What becomes of the sums. T is the type of the operands, Out that of the results.
template <typename T, typename Out>
struct MatmulResult {
  Out* c = nullptr;  // [rows, columns], rows are contiguous
  int64_t stride = 0;
  Store store = Store::kOverwrite;  // kAdd: c += sums; only if Out is float, without bias and activation
  const T* bias = nullptr;          // [columns], or null: none
  // c = activation(sums + bias), of sums rounded to Out: the bits are those of bias_activation_forward on a stored
  // product. Absent: c = sums + bias, rounded once.
  std::optional<Activation> activation = std::nullopt;
  Out* product = nullptr;  // or null: the sums without bias and activation, stride as c; only with an activation
};

// C[rows, columns] = A[rows, depth] B[depth, columns]. Sizes may be 0; without depth the sums are 0. C overlaps neither
// operand: rows of bf16 A that begin on cache lines and are row_stride apart (cache_blocks.h) are read where they lie
// by AMX's tiles, others are packed first.
template <typename T, typename Out>
struct Matmul {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  MatrixOperand<T> a;
  MatrixOperand<T> b;  // not read where a PackedMatrix is given
  MatmulResult<T, Out> result;
};

// How a right operand B[depth, columns] is packed: panel by panel, by as many threads as like.
template <typename T>
class Packing {
 public:
  Packing(const MatrixOperand<T>& b, int64_t depth, int64_t columns, Isa highest = best_isa());

  int64_t panels() const { return panels_; }
  int64_t floats() const { return floats_; }  // of all panels, in whole cache lines
  // Fills what belongs to panels [begin, end), to the last byte, of `memory`, which has all floats().
  void pack(int64_t begin, int64_t end, float* memory) const;

 private:
  MatrixOperand<T> b_;
  int64_t depth_;
  int64_t columns_;
  Isa isa_;
  int64_t panels_;
  int64_t floats_;
};

// A right operand B[depth, columns] packed once for many products: weights. Copies of values, in the layout of one
// rung. Immutable, so threads may share it.
template <typename T>
class PackedMatrix {
 public:
  PackedMatrix(const MatrixOperand<T>& b, int64_t depth, int64_t columns, Isa highest = best_isa());
  // On the memory() of a matrix with these sizes and this layout(), which may have gone through a file. Error (kConfig)
  // if it has another size.
  PackedMatrix(SharedFloats memory, int64_t depth, int64_t columns, Isa highest = best_isa());

  // The same matrix, multiplied in other blocks; shares its memory.
  PackedMatrix in_blocks(const CacheBlocks& blocks) const;
  const CacheBlocks& blocks() const { return blocks_; }

  // Names the rung and how it packs: "avx512_bf16, panels of 32 columns, units of 2 in steps of 1, version 2". Two
  // programs that give the same name read each other's memory().
  static std::string layout(Isa highest = best_isa());

  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  int64_t bytes() const { return panels_.bytes(); }
  Isa isa() const { return isa_; }
  const float* panels() const { return panels_.data(); }
  const SharedFloats& memory() const { return panels_; }  // whole cache lines

 private:
  int64_t depth_;
  int64_t columns_;
  Isa isa_;
  SharedFloats panels_;
  CacheBlocks blocks_;
};

// (T, Out) is (float, float), (BFloat16, BFloat16) or (BFloat16, float). Uses the calling thread's number of threads
// (core/threads.h). Error (kInternal) for strides that are too small and for results that are not as above.
// Beside a few megabytes per thread, the first form allocates a packed copy of B, in pieces of at most 8 MiB, and for
// products deeper than such a piece, fp32 sums of as many columns as it has. None of it outlives the call.
template <typename T, typename Out>
void matmul(const Matmul<T, Out>& args, Isa highest = best_isa());

// The same bits as the first form with highest = b.isa().
template <typename T, typename Out>
void matmul(const Matmul<T, Out>& args, const PackedMatrix<T>& b);

// The same bits, computed by the calling thread alone and without an allocation: `scratch` is 64-byte aligned and has
// matmul_scratch<T, Out>(rows, b, part.count) floats, where args.rows is at most `rows`. With `part` one of the parts
// that threads share, each with scratch of its own: together they compute all of the product.
template <typename T, typename Out>
void matmul_on_thread(const Matmul<T, Out>& args, const PackedMatrix<T>& b, float* scratch,
                      const ThreadPart& part = {});
template <typename T, typename Out>
int64_t matmul_scratch(int64_t rows, const PackedMatrix<T>& b, int threads = 1);

}  // namespace strake::kernels
