#pragma once

#include <cstdint>
#include <span>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

// Sums of squares for gradient clipping, cut at fixed places of the flat buffer: the total has the same bits for any
// number of threads, and for any number of ranks whose shards begin at multiples of kSquaresChunk.
namespace strake::kernels {

inline constexpr int64_t kSquaresChunk = 16384;  // elements

constexpr int64_t num_squares_chunks(int64_t count) { return (count + kSquaresChunk - 1) / kSquaresChunk; }

// partial[c] = sum of the squares of elements [c, c + 1) * kSquaresChunk of x, in double. T is float, BFloat16 or Half.
// partial has num_squares_chunks(count) elements.
template <typename T>
void sum_of_squares(const T* x, int64_t count, std::span<double> partial, Isa highest = best_isa());

// Adds partial sums in order.
double add_in_order(std::span<const double> partial);

}  // namespace strake::kernels
