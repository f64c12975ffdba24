#pragma once

#include "strake/kernels/embedding.h"

namespace strake::kernels {

// Tokens that read the same row of a table.
struct EmbeddingRun {
  int64_t row;
  const int32_t* tokens;  // ascending
  int64_t count;
};

template <typename T>
struct EmbeddingRung {
  Isa isa;
  void (*forward)(const EmbeddingForward<T>&, int64_t begin, int64_t end);  // tokens [begin, end)
  // Adds the tokens of a run to their row of the table, columns [begin, end).
  void (*add)(const EmbeddingBackward<T>&, const EmbeddingRun&, int64_t begin, int64_t end);
};

namespace reference {
extern const EmbeddingRung<float> kEmbeddingFloat;
extern const EmbeddingRung<BFloat16> kEmbeddingBFloat16;
extern const EmbeddingRung<Half> kEmbeddingHalf;
}  // namespace reference
namespace avx2 {
extern const EmbeddingRung<float> kEmbeddingFloat;
extern const EmbeddingRung<BFloat16> kEmbeddingBFloat16;
extern const EmbeddingRung<Half> kEmbeddingHalf;
}  // namespace avx2
namespace avx512 {
extern const EmbeddingRung<float> kEmbeddingFloat;
extern const EmbeddingRung<BFloat16> kEmbeddingBFloat16;
extern const EmbeddingRung<Half> kEmbeddingHalf;
}  // namespace avx512

}  // namespace strake::kernels
