#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "strake/core/threads.h"

namespace strake::kernels {

// Sums over tokens are cut into chunks of this many tokens and the chunks' sums added in order, so that their bits do
// not depend on the number of threads.
inline constexpr int64_t kTokenChunk = 64;

// Calls chunk(begin, end, partial) for every chunk of tokens, where partial[width] starts at 0, and leaves the sum of
// all partials in out[width].
template <typename Chunk>
void sum_over_tokens(int64_t tokens, int64_t width, float* out, const Chunk& chunk) {
  const int64_t chunks = (tokens + kTokenChunk - 1) / kTokenChunk;
  const auto partials = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(chunks * width));
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      float* const partial = partials.get() + c * width;
      std::fill_n(partial, width, 0.0F);
      chunk(c * kTokenChunk, std::min(tokens, (c + 1) * kTokenChunk), partial);
    }
  });
  parallel_for(width, 1024, [&](int64_t begin, int64_t end) {
    std::fill(out + begin, out + end, 0.0F);
    for (int64_t c = 0; c < chunks; ++c) {
      const float* const partial = partials.get() + c * width;
      for (int64_t i = begin; i < end; ++i) out[i] += partial[i];
    }
  });
}

}  // namespace strake::kernels
