#include <cmath>

#include "strake/kernels/bias_activation_rungs.h"
#include "strake/kernels/int8_matmul_rungs.h"

namespace strake::kernels::reference {
namespace {

int64_t no_scratch(int64_t, const QuantizedMatrix&) { return 0; }

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

// A panel is a column.
template <typename Out>
int64_t multiply(const Int8MatmulPart<Out>& part) {
  const Int8Matmul<Out>& args = part.args;
  const int64_t depth = part.b.depth();
  int64_t first_bad = kAllRowsFinite;
  for (int64_t row = 0; row < args.rows; ++row) {
    const BFloat16* const a = args.a + row * args.a_stride;
    const float largest = largest_magnitude(a, depth);
    if (std::isnan(largest) && first_bad == kAllRowsFinite) first_bad = row;
    const bool none = std::isnan(largest) || largest < kLeastMagnitude;
    const float inverse = none ? 0.0F : 127.0F / largest;
    const float scale = largest < kLeastMagnitude ? 0.0F : largest / 127.0F;
    for (int64_t column = part.column_begin; column < part.column_end; ++column) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth && !none; ++k) {
        const float q = std::fma(to_float(a[k]), inverse, kRoundingAddend) - kRoundingAddend;
        sum += static_cast<int32_t>(q) * part.b.panels()[column * depth + k];
      }
      const float bias = args.bias == nullptr ? 0.0F : args.bias[column];
      const float value = std::fma(static_cast<float>(sum), scale * part.b.scales()[column], bias);
      args.c[row * args.c_stride + column] = from_float<Out>(activated(value, args.activation));
    }
  }
  return first_bad;
}

template <typename Out>
constexpr Int8MatmulRung<Out> kRung{Isa::kReference, {1, 1, 1, 1, 0}, &no_scratch, &multiply<Out>};

}  // namespace

const Int8MatmulRung<BFloat16> kInt8Matmul = kRung<BFloat16>;
const Int8MatmulRung<float> kInt8MatmulToFloat = kRung<float>;

}  // namespace strake::kernels::reference
