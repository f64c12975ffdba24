#pragma once

#include "strake/kernels/embedding.h"

namespace strake::kernels {

template <typename T>
struct EmbeddingRung {
  Isa isa;
  void (*forward)(const EmbeddingForward<T>&, int64_t begin, int64_t end);  // tokens [begin, end)
};

// Tokens that read the same row of a table.
struct EmbeddingRun {
  int64_t row;
  const int32_t* tokens;  // ascending
  int64_t count;
};

template <typename T, typename G>
struct EmbeddingGradientRung {
  Isa isa;
  // Adds the tokens of a run to their row of the table, columns [begin, end).
  void (*add)(const EmbeddingBackward<T, G>&, const EmbeddingRun&, int64_t begin, int64_t end);
};

namespace reference {
extern const EmbeddingRung<float> kEmbeddingFloat;
extern const EmbeddingRung<BFloat16> kEmbeddingBFloat16;
extern const EmbeddingRung<Half> kEmbeddingHalf;
extern const EmbeddingGradientRung<float, float> kEmbeddingGradientFloat;
extern const EmbeddingGradientRung<BFloat16, float> kEmbeddingGradientMixed;
extern const EmbeddingGradientRung<Half, float> kEmbeddingGradientHalf;
extern const EmbeddingGradientRung<BFloat16, BFloat16> kEmbeddingGradientBFloat16;
}  // namespace reference
namespace avx2 {
extern const EmbeddingRung<float> kEmbeddingFloat;
extern const EmbeddingRung<BFloat16> kEmbeddingBFloat16;
extern const EmbeddingRung<Half> kEmbeddingHalf;
extern const EmbeddingGradientRung<float, float> kEmbeddingGradientFloat;
extern const EmbeddingGradientRung<BFloat16, float> kEmbeddingGradientMixed;
extern const EmbeddingGradientRung<Half, float> kEmbeddingGradientHalf;
extern const EmbeddingGradientRung<BFloat16, BFloat16> kEmbeddingGradientBFloat16;
}  // namespace avx2
namespace avx512 {
extern const EmbeddingRung<float> kEmbeddingFloat;
extern const EmbeddingRung<BFloat16> kEmbeddingBFloat16;
extern const EmbeddingRung<Half> kEmbeddingHalf;
extern const EmbeddingGradientRung<float, float> kEmbeddingGradientFloat;
extern const EmbeddingGradientRung<BFloat16, float> kEmbeddingGradientMixed;
extern const EmbeddingGradientRung<Half, float> kEmbeddingGradientHalf;
extern const EmbeddingGradientRung<BFloat16, BFloat16> kEmbeddingGradientBFloat16;
}  // namespace avx512

}  // namespace strake::kernels
