#pragma once

#include "strake/kernels/dropout.h"
#include "strake/kernels/keep_rule.h"

namespace strake::kernels {

template <typename T>
struct DropoutRung {
  Isa isa;
  void (*apply)(const DropoutArgs<T>&, const KeepRule&, int64_t begin, int64_t end);  // tokens [begin, end)
};

namespace reference {
extern const DropoutRung<float> kDropoutFloat;
extern const DropoutRung<BFloat16> kDropoutBFloat16;
extern const DropoutRung<Half> kDropoutHalf;
}  // namespace reference
namespace avx2 {
extern const DropoutRung<float> kDropoutFloat;
extern const DropoutRung<BFloat16> kDropoutBFloat16;
extern const DropoutRung<Half> kDropoutHalf;
}  // namespace avx2
namespace avx512 {
extern const DropoutRung<float> kDropoutFloat;
extern const DropoutRung<BFloat16> kDropoutBFloat16;
extern const DropoutRung<Half> kDropoutHalf;
}  // namespace avx512

}  // namespace strake::kernels
