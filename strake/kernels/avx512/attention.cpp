#include "strake/kernels/simd/attention_backward.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const AttentionRung<float> kAttentionFloat{
    Isa::kAvx512, &attention_forward_scratch<Avx512>, &attention_backward_scratch<Avx512>,
    &for_each_head<&attention_forward_item<Avx512, float>>, &for_each_head<&attention_backward_item<Avx512, float>>};
const AttentionRung<BFloat16> kAttentionBFloat16{Isa::kAvx512, &attention_forward_scratch<Avx512>,
                                                 &attention_backward_scratch<Avx512>,
                                                 &for_each_head<&attention_forward_item<Avx512, BFloat16>>,
                                                 &for_each_head<&attention_backward_item<Avx512, BFloat16>>};
const AttentionRung<Half> kAttentionHalf{
    Isa::kAvx512, &attention_forward_scratch<Avx512>, &attention_backward_scratch<Avx512>,
    &for_each_head<&attention_forward_item<Avx512, Half>>, &for_each_head<&attention_backward_item<Avx512, Half>>};

}  // namespace strake::kernels::avx512
