#include "strake/kernels/dropout_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
void apply(const DropoutArgs<T>& args, const KeepRule& keep, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t c = 0; c < args.columns; ++c) {
      const int64_t i = token * args.columns + c;
      args.y[i] = from_float<T>(to_float(args.x[i]) * keep_factor(keep, token, c));
    }
  }
}

}  // namespace

const DropoutRung<float> kDropoutFloat{Isa::kReference, &apply<float>};
const DropoutRung<BFloat16> kDropoutBFloat16{Isa::kReference, &apply<BFloat16>};
const DropoutRung<Half> kDropoutHalf{Isa::kReference, &apply<Half>};

}  // namespace strake::kernels::reference
