#include "strake/kernels/global_norm_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
double squares_of(const T* x, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += double{to_float(x[i])} * double{to_float(x[i])};
  return total;
}

}  // namespace

const SquaresRung<float> kSquaresFloat{Isa::kReference, &squares_of<float>};
const SquaresRung<BFloat16> kSquaresBFloat16{Isa::kReference, &squares_of<BFloat16>};
const SquaresRung<Half> kSquaresHalf{Isa::kReference, &squares_of<Half>};

}  // namespace strake::kernels::reference
