#include "strake/kernels/simd/embedding.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const EmbeddingRung<float> kEmbeddingFloat{Isa::kAvx512, &embedding_range<Avx512, float>};
const EmbeddingRung<BFloat16> kEmbeddingBFloat16{Isa::kAvx512, &embedding_range<Avx512, BFloat16>};
const EmbeddingRung<Half> kEmbeddingHalf{Isa::kAvx512, &embedding_range<Avx512, Half>};
const EmbeddingGradientRung<float, float> kEmbeddingGradientFloat{Isa::kAvx512,
                                                                  &embedding_gradient_range<Avx512, float, float>};
const EmbeddingGradientRung<BFloat16, float> kEmbeddingGradientMixed{
    Isa::kAvx512, &embedding_gradient_range<Avx512, BFloat16, float>};
const EmbeddingGradientRung<Half, float> kEmbeddingGradientHalf{Isa::kAvx512,
                                                                &embedding_gradient_range<Avx512, Half, float>};
const EmbeddingGradientRung<BFloat16, BFloat16> kEmbeddingGradientBFloat16{
    Isa::kAvx512, &embedding_gradient_range<Avx512, BFloat16, BFloat16>};

}  // namespace strake::kernels::avx512
