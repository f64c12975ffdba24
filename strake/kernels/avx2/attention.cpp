#include "strake/kernels/simd/attention_backward.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const AttentionRung<float> kAttentionFloat{
    Isa::kAvx2, &attention_forward_scratch<Avx2>, &attention_backward_scratch<Avx2>,
    &for_each_head<&attention_forward_item<Avx2, float>>, &for_each_head<&attention_backward_item<Avx2, float>>};
const AttentionRung<BFloat16> kAttentionBFloat16{
    Isa::kAvx2, &attention_forward_scratch<Avx2>, &attention_backward_scratch<Avx2>,
    &for_each_head<&attention_forward_item<Avx2, BFloat16>>, &for_each_head<&attention_backward_item<Avx2, BFloat16>>};
const AttentionRung<Half> kAttentionHalf{
    Isa::kAvx2, &attention_forward_scratch<Avx2>, &attention_backward_scratch<Avx2>,
    &for_each_head<&attention_forward_item<Avx2, Half>>, &for_each_head<&attention_backward_item<Avx2, Half>>};

}  // namespace strake::kernels::avx2
