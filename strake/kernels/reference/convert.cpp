#include "strake/kernels/convert_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename From, typename To>
void convert_range(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<To>(to_float(from[i]));
}

template <typename T>
void accumulate_range(float* sum, const T* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += to_float(x[i]);
}

}  // namespace

const ConvertRung kConvert{
    Isa::kReference,
    &accumulate_range<float>,
    {&convert_range<float, BFloat16>, &convert_range<BFloat16, float>, &accumulate_range<BFloat16>},
    {&convert_range<float, Half>, &convert_range<Half, float>, &accumulate_range<Half>}};

}  // namespace strake::kernels::reference
