#include "strake/kernels/simd/optimizer_pass.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const OptimizerPassRung kOptimizerPass{Isa::kAvx512,
                                       {&adam_run<Avx512, float>, &adam_run<Avx512, BFloat16>, &adam_run<Avx512, Half>,
                                        &adam_run<Avx512, BFloat16, BFloat16>, &adam_run<Avx512, Half, Half, float>},
                                       {&adagrad_run<Avx512, float>, &adagrad_run<Avx512, BFloat16>,
                                        &adagrad_run<Avx512, Half>, &adagrad_run<Avx512, BFloat16, BFloat16>},
                                       {&lion_run<Avx512, float>, &lion_run<Avx512, BFloat16>, &lion_run<Avx512, Half>,
                                        &lion_run<Avx512, BFloat16, BFloat16>},
                                       {&sgd_run<Avx512, float>, &sgd_run<Avx512, BFloat16>, &sgd_run<Avx512, Half>,
                                        &sgd_run<Avx512, BFloat16, BFloat16>}};

}  // namespace strake::kernels::avx512
