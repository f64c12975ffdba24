#pragma once

#include "strake/kernels/global_norm.h"

namespace strake::kernels {

template <typename T>
struct SquaresRung {
  Isa isa;
  double (*sum)(const T* x, int64_t count);
};

namespace reference {
extern const SquaresRung<float> kSquaresFloat;
extern const SquaresRung<BFloat16> kSquaresBFloat16;
extern const SquaresRung<Half> kSquaresHalf;
}  // namespace reference
namespace avx2 {
extern const SquaresRung<float> kSquaresFloat;
extern const SquaresRung<BFloat16> kSquaresBFloat16;
extern const SquaresRung<Half> kSquaresHalf;
}  // namespace avx2
namespace avx512 {
extern const SquaresRung<float> kSquaresFloat;
extern const SquaresRung<BFloat16> kSquaresBFloat16;
extern const SquaresRung<Half> kSquaresHalf;
}  // namespace avx512

}  // namespace strake::kernels
