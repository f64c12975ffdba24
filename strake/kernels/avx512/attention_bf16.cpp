#include "strake/kernels/simd/attention_backward.h"

#include "strake/kernels/simd/avx512_bf16.h"

namespace strake::kernels::avx512 {

const AttentionRung<BFloat16> kAttentionBFloat16Conversion{
    Isa::kAvx512Bf16, &attention_forward_scratch<Avx512Bf16>, &attention_backward_scratch<Avx512Bf16>,
    &for_each_head<&attention_forward_item<Avx512Bf16, BFloat16>>,
    &for_each_head<&attention_backward_item<Avx512Bf16, BFloat16>>};

}  // namespace strake::kernels::avx512
