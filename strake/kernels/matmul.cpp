#include "strake/kernels/matmul.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/matmul_rungs.h"
#include "strake/kernels/row_shares.h"

namespace strake::kernels {
namespace {

template <typename T, typename Out>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<MatmulRung<float, float>, 3> kLadder<float, float>{&avx512::kMatmulFloat, &avx2::kMatmulFloat,
                                                                    &reference::kMatmulFloat};
template <>
constexpr Ladder<MatmulRung<BFloat16, BFloat16>, 5> kLadder<BFloat16, BFloat16>{
    &amx::kMatmulBFloat16, &avx512::kMatmulBFloat16Pairs, &avx512::kMatmulBFloat16, &avx2::kMatmulBFloat16,
    &reference::kMatmulBFloat16};
template <>
constexpr Ladder<MatmulRung<BFloat16, float>, 5> kLadder<BFloat16, float>{
    &amx::kMatmulBFloat16ToFloat, &avx512::kMatmulBFloat16PairsToFloat, &avx512::kMatmulBFloat16ToFloat,
    &avx2::kMatmulBFloat16ToFloat, &reference::kMatmulBFloat16ToFloat};

template <typename T, typename Out>
const MatmulRung<T, Out>& pick_rung(Isa highest) {
  return pick(kLadder<T, Out>, highest);
}

constexpr int64_t kPieceFloats = int64_t{2} << 20;  // of packed B at a time: 8 MiB
constexpr int64_t kFewColumns = 256;                // so few that packing A for each piece would be felt
constexpr int64_t kThreadFlops = 2'000'000;         // less than this a thread is not worth waking for

int64_t pieces_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

DepthBlocks depth_blocks(const MatmulTile& tile, int64_t depth) {
  return DepthBlocks(pieces_of(depth, tile.depth_per_unit * tile.depth_step) * tile.depth_step);
}

int threads_for(double flops) {
  return static_cast<int>(std::clamp(flops / static_cast<double>(kThreadFlops), 1.0, double{1} * num_threads()));
}

template <typename T, typename Out>
class Product {
 public:
  Product(const Matmul<T, Out>& args, const MatmulRung<T, Out>& rung, const CacheBlocks& blocks = {})
      : args_(args), rung_(rung), blocks_(blocks) {}

  // `panels` holds the piece; `sums` is as in MatmulPart.
  void multiply(const PanelPiece& piece, const float* panels, float* sums) const {
    const int64_t row_tiles = pieces_of(args_.rows, rung_.tile.rows);
    const int64_t panel_count = pieces_of(piece.columns, rung_.tile.columns);
    const double flops = 2.0 * static_cast<double>(args_.rows * piece.columns) * static_cast<double>(args_.depth);
    const ThreadGrid grid(threads_for(flops), rung_.tile.rows, row_tiles, panel_count);
    RowShares shares(grid, pieces_of(rung_.fewest_rows, rung_.tile.rows));
    const auto part = [&](const RowShares::Share& share, float* scratch) {
      const auto [panel_begin, panel_end] = grid.panels_of(share.part);
      return MatmulPart<T, Out>{.args = args_,
                                .piece = piece,
                                .panels = panels,
                                .row_begin = share.rows.begin * rung_.tile.rows,
                                .row_end = std::min(args_.rows, share.rows.end * rung_.tile.rows),
                                .panel_begin = panel_begin,
                                .panel_end = panel_end,
                                .sums = sums,
                                .scratch = scratch,
                                .blocks = blocks_};
    };
    int64_t scratch_floats = 0;
    for (const auto& share : shares.all())
      scratch_floats = std::max(scratch_floats, rung_.scratch(part(share, nullptr)));
    Scratch scratch(grid.parts(), scratch_floats);
    parallel_for(grid.parts(), 1, [&](int64_t begin, int64_t /*end*/) {
      float* const piece_of_scratch = scratch.take();
      shares.take(begin, [&](const RowShares::Share& share) { rung_.multiply(part(share, piece_of_scratch)); });
    });
  }

  void run() const {
    const DepthBlocks blocks = depth_blocks(rung_.tile, args_.depth);
    const int64_t whole_depth = kPieceFloats / std::max<int64_t>(1, blocks.units);  // columns
    PanelPiece piece{.depth = args_.depth, .columns = args_.columns, .blocks = blocks.count};
    if (whole_depth < args_.columns) {
      piece.columns = whole_depth;
      if (whole_depth < kFewColumns) {
        piece.columns = std::min(args_.columns, std::clamp<int64_t>(kPieceFloats / args_.rows, kFewColumns, 768));
        piece.blocks = std::max<int64_t>(1, kPieceFloats / (piece.columns * blocks.size));
      }
      const int64_t panels = pieces_of(args_.columns, rung_.tile.columns);
      const int64_t pieces = pieces_of(args_.columns, piece.columns);
      piece.columns = pieces_of(panels, pieces) * rung_.tile.columns;  // as equal as can be
    }
    const int64_t padded = pieces_of(piece.columns, rung_.tile.columns) * rung_.tile.columns;
    AlignedFloats panels(padded * piece.blocks * blocks.size);
    AlignedFloats sums(piece.blocks < blocks.count ? pieces_of(args_.rows, rung_.tile.rows) * rung_.tile.rows * padded
                                                   : 0);
    for (piece.first_column = 0; piece.first_column < args_.columns; piece.first_column += piece.columns) {
      run_columns(piece, panels, piece.blocks < blocks.count ? sums.data() : nullptr);
    }
  }

 private:
  void run_columns(PanelPiece piece, AlignedFloats& panels, float* sums) const {
    const DepthBlocks blocks = depth_blocks(rung_.tile, args_.depth);
    const int64_t most_blocks = piece.blocks;
    piece.columns = std::min(piece.columns, args_.columns - piece.first_column);
    for (; piece.first_block < blocks.count; piece.first_block += most_blocks) {
      piece.blocks = std::min(most_blocks, blocks.count - piece.first_block);
      parallel_for(pieces_of(piece.columns, rung_.tile.columns), 1,
                   [&](int64_t begin, int64_t end) { rung_.pack(args_.b, piece, begin, end, panels.data()); });
      multiply(piece, panels.data(), sums);
    }
  }

  const Matmul<T, Out>& args_;
  const MatmulRung<T, Out>& rung_;
  CacheBlocks blocks_;
};

template <typename T>
void check_operand(const MatrixOperand<T>& m, int64_t rows, int64_t columns, const char* name) {
  const int64_t contiguous = m.order == Order::kRows ? columns : rows;
  require(m.stride >= contiguous, ErrorKind::kInternal, "product: {} has stride {} for {} contiguous numbers", name,
          m.stride, contiguous);
}

template <typename T, typename Out>
void check(const Matmul<T, Out>& args) {
  require(args.rows >= 0 && args.columns >= 0 && args.depth >= 0, ErrorKind::kInternal,
          "product of [{}, {}] and [{}, {}]", args.rows, args.depth, args.depth, args.columns);
  check_operand(args.a, args.rows, args.depth, "A");
  const MatmulResult<T, Out>& result = args.result;
  require(result.stride >= args.columns, ErrorKind::kInternal, "product: C has stride {} for {} columns", result.stride,
          args.columns);
  const bool plain = result.bias == nullptr && !result.activation;
  require(result.store == Store::kOverwrite || (plain && std::is_same_v<Out, float>), ErrorKind::kInternal,
          "product: only plain fp32 sums can be added to C");
  require(result.product == nullptr || result.activation, ErrorKind::kInternal,
          "product: sums are stored apart only beside an activation");
}

template <typename T, typename Out>
void check(const Matmul<T, Out>& args, const PackedMatrix<T>& b) {
  check(args);
  require(args.depth == b.depth() && args.columns == b.columns(), ErrorKind::kInternal,
          "product with B[{}, {}], packed as [{}, {}]", args.depth, args.columns, b.depth(), b.columns());
}

// One of the grid's parts of a whole product.
template <typename T, typename Out>
MatmulPart<T, Out> part_of(const Matmul<T, Out>& args, const PackedMatrix<T>& b, const ThreadGrid& grid, int index) {
  const MatmulTile& tile = pick_rung<T, Out>(b.isa()).tile;
  return {.args = args,
          .piece = {.depth = args.depth, .columns = args.columns, .blocks = depth_blocks(tile, args.depth).count},
          .panels = b.panels(),
          .row_begin = grid.rows_of(index).begin * tile.rows,
          .row_end = std::min(args.rows, grid.rows_of(index).end * tile.rows),
          .panel_begin = grid.panels_of(index).begin,
          .panel_end = grid.panels_of(index).end,
          .sums = nullptr,
          .scratch = nullptr,
          .blocks = b.blocks()};
}

constexpr int kLayoutVersion = 2;  // raise it where pack() puts numbers elsewhere with the same tile

template <typename T>
SharedFloats pack(const MatrixOperand<T>& b, int64_t depth, int64_t columns, Isa highest) {
  const Packing<T> packing(b, depth, columns, highest);
  AlignedFloats memory(packing.floats());
  parallel_for(packing.panels(), 1, [&](int64_t begin, int64_t end) { packing.pack(begin, end, memory.data()); });
  return SharedFloats(std::move(memory));
}

}  // namespace

template <typename T>
Packing<T>::Packing(const MatrixOperand<T>& b, int64_t depth, int64_t columns, Isa highest)
    : b_(b), depth_(depth), columns_(columns), isa_(pick_rung<T, T>(highest).isa) {
  require(depth >= 0 && columns >= 0, ErrorKind::kInternal, "packed matrix of [{}, {}]", depth, columns);
  if (b.data != nullptr) check_operand(b, depth, columns, "B");  // else only the size is asked for
  const MatmulTile& tile = pick_rung<T, T>(isa_).tile;
  panels_ = pieces_of(columns, tile.columns);
  floats_ = whole_lines(panels_ * tile.columns * depth_blocks(tile, depth).units);
}

template <typename T>
void Packing<T>::pack(int64_t begin, int64_t end, float* memory) const {
  const MatmulRung<T, T>& rung = pick_rung<T, T>(isa_);
  const DepthBlocks blocks = depth_blocks(rung.tile, depth_);
  if (end == panels_) {
    // Not all of the last panel, and nothing behind it, is packed: it may go into a file.
    const int64_t whole = columns_ / rung.tile.columns * rung.tile.columns * blocks.units;
    std::fill(memory + whole, memory + floats_, 0.0F);
  }
  rung.pack(b_, {.depth = depth_, .columns = columns_, .blocks = blocks.count}, begin, end, memory);
}

template <typename T>
PackedMatrix<T>::PackedMatrix(const MatrixOperand<T>& b, int64_t depth, int64_t columns, Isa highest)
    : depth_(depth), columns_(columns), isa_(pick_rung<T, T>(highest).isa), panels_(pack(b, depth, columns, highest)) {}

template <typename T>
PackedMatrix<T>::PackedMatrix(SharedFloats memory, int64_t depth, int64_t columns, Isa highest)
    : depth_(depth), columns_(columns), isa_(pick_rung<T, T>(highest).isa), panels_(std::move(memory)) {
  const int64_t count = Packing<T>({}, depth, columns, highest).floats();
  require(panels_.count() == count, ErrorKind::kConfig, "{} floats are not a matrix of [{}, {}], which has {}",
          panels_.count(), depth, columns, count);
}

template <typename T>
PackedMatrix<T> PackedMatrix<T>::in_blocks(const CacheBlocks& blocks) const {
  PackedMatrix other = *this;
  other.blocks_ = blocks;
  return other;
}

template <typename T>
std::string PackedMatrix<T>::layout(Isa highest) {
  const MatmulRung<T, T>& rung = pick_rung<T, T>(highest);
  return fmt::format("{}, panels of {} columns, units of {} in steps of {}, version {}", to_string(rung.isa),
                     rung.tile.columns, rung.tile.depth_per_unit, rung.tile.depth_step, kLayoutVersion);
}

template <typename T, typename Out>
void matmul(const Matmul<T, Out>& args, Isa highest) {
  check(args);
  check_operand(args.b, args.depth, args.columns, "B");
  if (args.rows == 0 || args.columns == 0) return;
  Product<T, Out>(args, pick_rung<T, Out>(highest)).run();
}

template <typename T, typename Out>
void matmul(const Matmul<T, Out>& args, const PackedMatrix<T>& b) {
  check(args, b);
  if (args.rows == 0 || args.columns == 0) return;
  const MatmulRung<T, Out>& rung = pick_rung<T, Out>(b.isa());
  const DepthBlocks blocks = depth_blocks(rung.tile, args.depth);
  Product<T, Out>(args, rung, b.blocks())
      .multiply({.depth = args.depth, .columns = args.columns, .blocks = blocks.count}, b.panels(), nullptr);
}

template <typename T, typename Out>
void matmul_on_thread(const Matmul<T, Out>& args, const PackedMatrix<T>& b, float* scratch, const ThreadPart& part) {
  check(args, b);
  if (args.rows == 0 || args.columns == 0) return;
  const MatmulRung<T, Out>& rung = pick_rung<T, Out>(b.isa());
  const MatmulTile& tile = rung.tile;
  const ThreadGrid grid(part.count, tile.rows, pieces_of(args.rows, tile.rows), pieces_of(args.columns, tile.columns));
  if (part.index >= grid.parts()) return;
  MatmulPart<T, Out> mine = part_of(args, b, grid, part.index);
  mine.scratch = scratch;
  rung.multiply(mine);
}

template <typename T, typename Out>
int64_t matmul_scratch(int64_t rows, const PackedMatrix<T>& b, int threads) {
  const MatmulRung<T, Out>& rung = pick_rung<T, Out>(b.isa());
  const int64_t panels = pieces_of(b.columns(), rung.tile.columns);
  Matmul<T, Out> args{.columns = b.columns(), .depth = b.depth(), .a = {}, .b = {}, .result = {}};
  int64_t most = 0;  // a few rows or panels more may need less: blocks are made equal
  while (args.rows < rows) {
    args.rows += rung.tile.rows;
    const ThreadGrid grid(threads, rung.tile.rows, args.rows / rung.tile.rows, panels);
    // Parts have two numbers of rows and two of panels; these four have them all.
    for (const int i : {0, grid.across - 1, grid.parts() - grid.across, grid.parts() - 1}) {
      most = std::max(most, rung.scratch(part_of<T, Out>(args, b, grid, i)));
    }
  }
  return most;
}

template class Packing<float>;
template class Packing<BFloat16>;
template class PackedMatrix<float>;
template class PackedMatrix<BFloat16>;
template void matmul(const Matmul<float, float>&, Isa);
template void matmul(const Matmul<BFloat16, BFloat16>&, Isa);
template void matmul(const Matmul<BFloat16, float>&, Isa);
template void matmul(const Matmul<float, float>&, const PackedMatrix<float>&);
template void matmul(const Matmul<BFloat16, BFloat16>&, const PackedMatrix<BFloat16>&);
template void matmul(const Matmul<BFloat16, float>&, const PackedMatrix<BFloat16>&);
template void matmul_on_thread(const Matmul<float, float>&, const PackedMatrix<float>&, float*, const ThreadPart&);
template void matmul_on_thread(const Matmul<BFloat16, BFloat16>&, const PackedMatrix<BFloat16>&, float*,
                               const ThreadPart&);
template void matmul_on_thread(const Matmul<BFloat16, float>&, const PackedMatrix<BFloat16>&, float*,
                               const ThreadPart&);
template int64_t matmul_scratch<float, float>(int64_t, const PackedMatrix<float>&, int);
template int64_t matmul_scratch<BFloat16, BFloat16>(int64_t, const PackedMatrix<BFloat16>&, int);
template int64_t matmul_scratch<BFloat16, float>(int64_t, const PackedMatrix<BFloat16>&, int);

}  // namespace strake::kernels
