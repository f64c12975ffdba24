#include "strake/kernels/simd/lamb.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const LambRung kLamb{Isa::kAvx2,
                     {&lamb_moments_run<Avx2, float>, &lamb_moments_run<Avx2, BFloat16>, &lamb_moments_run<Avx2, Half>,
                      &lamb_moments_run<Avx2, BFloat16, BFloat16>},
                     {&lamb_apply_run<Avx2, float>, &lamb_apply_run<Avx2, BFloat16>}};

}  // namespace strake::kernels::avx2
