#include "strake/kernels/simd/embedding.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const EmbeddingRung<float> kEmbeddingFloat{Isa::kAvx512, &embedding_range<Avx512, float>,
                                           &embedding_gradient_range<Avx512, float>};
const EmbeddingRung<BFloat16> kEmbeddingBFloat16{Isa::kAvx512, &embedding_range<Avx512, BFloat16>,
                                                 &embedding_gradient_range<Avx512, BFloat16>};
const EmbeddingRung<Half> kEmbeddingHalf{Isa::kAvx512, &embedding_range<Avx512, Half>,
                                         &embedding_gradient_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
