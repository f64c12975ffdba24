#pragma once

#include <cstdint>

#include "strake/kernels/cache_blocks.h"
#include "strake/kernels/int8_matmul.h"
#include "strake/kernels/scratch.h"

namespace strake::inference {

// An array of activations, kernels::row_stride apart.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;

  T* row(int64_t i) const { return data + i * stride; }
};

// Buffers of a thread, or, but for the scratch, of threads that share a chunk. Each begins on a cache line.
template <typename T>
struct PassArrays {
  Rows<T> hidden;                    // [tokens, hidden_size]
  Rows<T> first;                     // [tokens, hidden_size]
  Rows<T> second;                    // [tokens, hidden_size]
  Rows<T> wide;                      // [tokens, max(3 hidden_size, intermediate_size)]
  kernels::QuantizedRows quantized;  // [tokens, hidden_size], what the next linear layer reads if that is in int8
  float* lse;                        // [tokens, heads]
  float* mean;                       // [tokens], like those below
  float* rstd;
  int32_t* positions;
  int32_t* types;
  int32_t* offsets;  // [tokens + 1]
  float* scratch;    // of products and attention
};

struct PassSizes {
  int64_t tokens;
  int64_t hidden;
  int64_t wide;
  int64_t heads;
  int64_t scratch;  // floats
  bool has_int8;
};

// The memory of all arrays, in one piece.
template <typename T>
class PassArena {
 public:
  explicit PassArena(const PassSizes& sizes) {
    Cutter count(nullptr);
    cut(count, sizes);
    memory_ = kernels::AlignedFloats(count.floats());
    Cutter cutter(memory_.data());
    arrays_ = cut(cutter, sizes);
  }
  const PassArrays<T>& arrays() const { return arrays_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  // Without memory it only counts.
  class Cutter {
   public:
    explicit Cutter(float* memory) : memory_(memory) {}
    template <typename U>
    U* take(int64_t count) {
      U* const piece = memory_ == nullptr ? nullptr : reinterpret_cast<U*>(memory_ + floats_);
      const int64_t bytes = count * static_cast<int64_t>(sizeof(U));
      floats_ += (bytes + 63) / 64 * 16;
      return piece;
    }
    int64_t floats() const { return floats_; }

   private:
    float* memory_;
    int64_t floats_ = 0;
  };

  static Rows<T> cut_rows(Cutter& cutter, int64_t tokens, int64_t columns) {
    const int64_t stride = kernels::row_stride<T>(columns);
    return {cutter.template take<T>(tokens * stride), stride};
  }

  static kernels::QuantizedRows cut_quantized(Cutter& cutter, int64_t tokens, int64_t columns) {
    const int64_t stride = kernels::quantized_stride(columns);
    int8_t* const values = cutter.template take<int8_t>(kernels::whole_tiles(tokens) * stride);
    return {values, stride, cutter.template take<float>(tokens)};
  }

  static PassArrays<T> cut(Cutter& cutter, const PassSizes& sizes) {
    const int64_t tokens = sizes.tokens;
    return {.hidden = cut_rows(cutter, tokens, sizes.hidden),
            .first = cut_rows(cutter, tokens, sizes.hidden),
            .second = cut_rows(cutter, tokens, sizes.hidden),
            .wide = cut_rows(cutter, tokens, sizes.wide),
            .quantized = sizes.has_int8 ? cut_quantized(cutter, tokens, sizes.hidden) : kernels::QuantizedRows{},
            .lse = cutter.template take<float>(tokens * sizes.heads),
            .mean = cutter.template take<float>(tokens),
            .rstd = cutter.template take<float>(tokens),
            .positions = cutter.template take<int32_t>(tokens),
            .types = cutter.template take<int32_t>(tokens),
            .offsets = cutter.template take<int32_t>(tokens + 1),
            .scratch = cutter.template take<float>(sizes.scratch)};
  }

  kernels::AlignedFloats memory_;
  PassArrays<T> arrays_;
};

}  // namespace strake::inference
