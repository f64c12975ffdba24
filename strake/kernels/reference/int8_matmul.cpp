#include <algorithm>
#include <cmath>

#include "strake/kernels/bias_activation_rungs.h"
#include "strake/kernels/int8_matmul_rungs.h"

namespace strake::kernels::reference {
namespace {

// NaN if a number of the row is not finite.
float largest_magnitude(const BFloat16* row, int64_t depth) {
  float largest = 0;
  for (int64_t k = 0; k < depth; ++k) {
    if (!std::isfinite(to_float(row[k]))) return std::nanf("");
    largest = std::fmax(largest, std::abs(to_float(row[k])));
  }
  return largest;
}

float activated(float x, const std::optional<Activation>& activation) {
  if (!activation) return x;
  float y = 0;
  kBiasActivationFloat.forward({.x = &x, .y = &y, .tokens = 1, .columns = 1, .activation = *activation}, 0, 1);
  return y;
}

void quantize(const RowsToQuantize& from, const QuantizedRows& to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    const BFloat16* const x = from.data + row * from.stride;
    int8_t* const q = to.data + row * to.stride;
    std::fill_n(q, filled_bytes(from.depth), int8_t{0});
    const float largest = largest_magnitude(x, from.depth);
    to.scales[row] = largest < kLeastMagnitude ? 0.0F : largest / 127.0F;
    if (std::isnan(largest) || largest < kLeastMagnitude) continue;
    const float inverse = 127.0F / largest;
    for (int64_t k = 0; k < from.depth; ++k) {
      q[k] = static_cast<int8_t>(std::fma(to_float(x[k]), inverse, kRoundingAddend) - kRoundingAddend);
    }
  }
}

struct Cut {
  Cut(int64_t rows, const QuantizedMatrix& b)
      : row_floats(quantized_stride(b.depth()) / 4), total(rows * row_floats + rows) {}
  int64_t row_floats, total;  // quantized rows, then their scales
};

int64_t scratch(int64_t rows, const QuantizedMatrix& b) { return Cut(rows, b).total; }

// A panel is a column.
template <typename Out>
int64_t multiply(const Int8MatmulPart<Out>& part) {
  const Int8Matmul<Out>& args = part.args;
  const int64_t depth = part.b.depth();
  QuantizedRows a = args.quantized;
  if (a.data == nullptr) {
    const int64_t row_floats = Cut(args.rows, part.b).row_floats;
    a = {reinterpret_cast<int8_t*>(part.scratch), row_floats * 4, part.scratch + args.rows * row_floats};
    quantize({args.a, args.a_stride, args.rows, depth}, a);
  }
  int64_t first_bad = kAllRowsFinite;
  for (int64_t row = 0; row < args.rows; ++row) {
    const QuantizedRows x = a.from(row);
    if (std::isnan(*x.scales) && first_bad == kAllRowsFinite) first_bad = row;
    for (int64_t column = part.column_begin; column < part.column_end; ++column) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += x.data[k] * part.b.panels()[column * depth + k];
      const float bias = args.bias == nullptr ? 0.0F : args.bias[column];
      const float value = std::fma(static_cast<float>(sum), *x.scales * part.b.scales()[column], bias);
      args.c[row * args.c_stride + column] = from_float<Out>(activated(value, args.activation));
    }
  }
  return first_bad;
}

template <typename Out>
constexpr Int8MatmulRung<Out> kRung{Isa::kReference, {1, 1, 1, 1, 0}, &scratch, &multiply<Out>, &quantize};

}  // namespace

const Int8MatmulRung<BFloat16> kInt8Matmul = kRung<BFloat16>;
const Int8MatmulRung<float> kInt8MatmulToFloat = kRung<float>;

}  // namespace strake::kernels::reference
