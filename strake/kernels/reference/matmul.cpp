#include <cmath>

#include "strake/kernels/bias_activation_rungs.h"
#include "strake/kernels/matmul_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
float element(const MatrixOperand<T>& m, int64_t row, int64_t column) {
  return to_float(m.order == Order::kRows ? m.data[row * m.stride + column] : m.data[column * m.stride + row]);
}

// A panel is a column.
template <typename T>
void pack(const MatrixOperand<T>& b, const PanelPiece& piece, int64_t begin, int64_t end, float* panels) {
  const DepthBlocks blocks(piece.depth);
  const int64_t first = blocks.begin(piece.first_block);
  const int64_t last = blocks.begin(piece.first_block + piece.blocks);
  for (int64_t panel = begin; panel < end; ++panel) {
    float* const to = panels + panel * (last - first);
    for (int64_t k = first; k < last; ++k) to[k - first] = element(b, k, piece.first_column + panel);
  }
}

template <typename T, typename Out>
void finish(const MatmulResult<T, Out>& result, int64_t row, int64_t column, float sum) {
  Out& c = result.c[row * result.stride + column];
  const float bias = result.bias == nullptr ? 0.0F : to_float(result.bias[column]);
  if (!result.activation) {
    const float value = result.bias == nullptr ? sum : sum + bias;
    c = from_float<Out>(result.store == Store::kAdd ? to_float(c) + value : value);
    return;
  }
  const Out product = from_float<Out>(sum);
  if (result.product != nullptr) result.product[row * result.stride + column] = product;
  const float x = to_float(product);
  float y = 0;
  const BiasActivationForward<float> call{
      .x = &x, .bias = &bias, .y = &y, .tokens = 1, .columns = 1, .activation = *result.activation};
  kBiasActivationFloat.forward(call, 0, 1);
  c = from_float<Out>(y);
}

template <typename T, typename Out>
int64_t no_scratch(const MatmulPart<T, Out>&) {
  return 0;
}

// One row times the units [begin, end) of a column, of which `b` is the first.
template <typename T>
float chain(const MatrixOperand<T>& a, int64_t row, const float* b, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t k = begin; k < end; ++k) sum = std::fma(element(a, row, k), b[k - begin], sum);
  return sum;
}

template <typename T, typename Out>
void multiply(const MatmulPart<T, Out>& part) {
  const DepthBlocks blocks(part.args.depth);
  const int64_t last_block = part.piece.first_block + part.piece.blocks;
  const int64_t first = blocks.begin(part.piece.first_block);
  for (int64_t row = part.row_begin; row < part.row_end; ++row) {
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      const float* const b = part.panels + panel * (blocks.begin(last_block) - first);
      float* const kept = part.sums == nullptr ? nullptr : part.sums + row * part.piece.columns + panel;
      float sum = part.piece.first_block == 0 ? 0.0F : *kept;
      for (int64_t block = part.piece.first_block; block < last_block; ++block) {
        const int64_t begin = blocks.begin(block);
        const float next = chain(part.args.a, row, b + (begin - first), begin, blocks.begin(block + 1));
        sum = block == 0 ? next : sum + next;
      }
      if (last_block == blocks.count) {
        finish(part.args.result, row, part.piece.first_column + panel, sum);
      } else {
        *kept = sum;
      }
    }
  }
}

template <typename T, typename Out>
constexpr MatmulRung<T, Out> kRung{Isa::kReference, {1, 1, 1}, &pack<T>, &no_scratch<T, Out>, &multiply<T, Out>};

}  // namespace

const MatmulRung<float, float> kMatmulFloat = kRung<float, float>;
const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16 = kRung<BFloat16, BFloat16>;
const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat = kRung<BFloat16, float>;

}  // namespace strake::kernels::reference
