#include "strake/kernels/simd/embedding.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const EmbeddingRung<float> kEmbeddingFloat{Isa::kAvx2, &embedding_range<Avx2, float>,
                                           &embedding_gradient_range<Avx2, float>};
const EmbeddingRung<BFloat16> kEmbeddingBFloat16{Isa::kAvx2, &embedding_range<Avx2, BFloat16>,
                                                 &embedding_gradient_range<Avx2, BFloat16>};
const EmbeddingRung<Half> kEmbeddingHalf{Isa::kAvx2, &embedding_range<Avx2, Half>,
                                         &embedding_gradient_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
