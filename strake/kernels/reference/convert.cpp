#include "strake/kernels/convert_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename To>
void convert_range(const float* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<To>(from[i]);
}

}  // namespace

const ConvertRung kConvert{Isa::kReference, &convert_range<BFloat16>, &convert_range<Half>};

}  // namespace strake::kernels::reference
