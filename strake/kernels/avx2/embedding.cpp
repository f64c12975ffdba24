#include "strake/kernels/simd/embedding.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const EmbeddingRung<float> kEmbeddingFloat{Isa::kAvx2, &embedding_range<Avx2, float>};
const EmbeddingRung<BFloat16> kEmbeddingBFloat16{Isa::kAvx2, &embedding_range<Avx2, BFloat16>};
const EmbeddingRung<Half> kEmbeddingHalf{Isa::kAvx2, &embedding_range<Avx2, Half>};
const EmbeddingGradientRung<float, float> kEmbeddingGradientFloat{Isa::kAvx2,
                                                                  &embedding_gradient_range<Avx2, float, float>};
const EmbeddingGradientRung<BFloat16, float> kEmbeddingGradientMixed{Isa::kAvx2,
                                                                     &embedding_gradient_range<Avx2, BFloat16, float>};
const EmbeddingGradientRung<Half, float> kEmbeddingGradientHalf{Isa::kAvx2,
                                                                &embedding_gradient_range<Avx2, Half, float>};
const EmbeddingGradientRung<BFloat16, BFloat16> kEmbeddingGradientBFloat16{
    Isa::kAvx2, &embedding_gradient_range<Avx2, BFloat16, BFloat16>};

}  // namespace strake::kernels::avx2
