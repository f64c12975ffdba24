#include "strake/kernels/simd/optimizer_pass.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const OptimizerPassRung kOptimizerPass{
    Isa::kAvx2,
    {&adam_run<Avx2, float>, &adam_run<Avx2, BFloat16>, &adam_run<Avx2, Half>, &adam_run<Avx2, BFloat16, BFloat16>,
     &adam_run<Avx2, Half, Half, float>},
    {&adagrad_run<Avx2, float>, &adagrad_run<Avx2, BFloat16>, &adagrad_run<Avx2, Half>,
     &adagrad_run<Avx2, BFloat16, BFloat16>},
    {&lion_run<Avx2, float>, &lion_run<Avx2, BFloat16>, &lion_run<Avx2, Half>, &lion_run<Avx2, BFloat16, BFloat16>},
    {&sgd_run<Avx2, float>, &sgd_run<Avx2, BFloat16>, &sgd_run<Avx2, Half>, &sgd_run<Avx2, BFloat16, BFloat16>}};

}  // namespace strake::kernels::avx2
