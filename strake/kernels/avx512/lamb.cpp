#include "strake/kernels/simd/lamb.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const LambRung kLamb{Isa::kAvx512,
                     {&lamb_moments_run<Avx512, float>, &lamb_moments_run<Avx512, BFloat16>,
                      &lamb_moments_run<Avx512, Half>, &lamb_moments_run<Avx512, BFloat16, BFloat16>},
                     {&lamb_apply_run<Avx512, float>, &lamb_apply_run<Avx512, BFloat16>}};

}  // namespace strake::kernels::avx512
