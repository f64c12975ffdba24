#pragma once

#include "strake/kernels/cross_entropy.h"

namespace strake::kernels {

template <typename T>
struct CrossEntropyRung {
  Isa isa;
  void (*run)(const CrossEntropyArgs<T>&, int64_t begin, int64_t end);  // tokens [begin, end)
};

namespace reference {
extern const CrossEntropyRung<float> kCrossEntropyFloat;
extern const CrossEntropyRung<BFloat16> kCrossEntropyBFloat16;
extern const CrossEntropyRung<Half> kCrossEntropyHalf;
}  // namespace reference
namespace avx2 {
extern const CrossEntropyRung<float> kCrossEntropyFloat;
extern const CrossEntropyRung<BFloat16> kCrossEntropyBFloat16;
extern const CrossEntropyRung<Half> kCrossEntropyHalf;
}  // namespace avx2
namespace avx512 {
extern const CrossEntropyRung<float> kCrossEntropyFloat;
extern const CrossEntropyRung<BFloat16> kCrossEntropyBFloat16;
extern const CrossEntropyRung<Half> kCrossEntropyHalf;
}  // namespace avx512

}  // namespace strake::kernels
