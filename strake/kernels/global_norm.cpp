#include "strake/kernels/global_norm.h"

#include <algorithm>
#include <cstddef>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/global_norm_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<SquaresRung<float>, 3> kLadder<float>{&avx512::kSquaresFloat, &avx2::kSquaresFloat,
                                                       &reference::kSquaresFloat};
template <>
constexpr Ladder<SquaresRung<BFloat16>, 3> kLadder<BFloat16>{&avx512::kSquaresBFloat16, &avx2::kSquaresBFloat16,
                                                             &reference::kSquaresBFloat16};
template <>
constexpr Ladder<SquaresRung<Half>, 3> kLadder<Half>{&avx512::kSquaresHalf, &avx2::kSquaresHalf,
                                                     &reference::kSquaresHalf};

}  // namespace

template <typename T>
void sum_of_squares(const T* x, int64_t count, std::span<double> partial, Isa highest) {
  const int64_t chunks = num_squares_chunks(count);
  require(static_cast<int64_t>(partial.size()) == chunks, ErrorKind::kInternal, "{} partial sums for {} chunks",
          partial.size(), chunks);
  const SquaresRung<T>& rung = pick(kLadder<T>, highest);
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * kSquaresChunk;
      partial[static_cast<size_t>(c)] = rung.sum(x + first, std::min(kSquaresChunk, count - first));
    }
  });
}

double add_in_order(std::span<const double> partial) {
  double sum = 0;
  for (const double value : partial) sum += value;
  return sum;
}

template void sum_of_squares(const float*, int64_t, std::span<double>, Isa);
template void sum_of_squares(const BFloat16*, int64_t, std::span<double>, Isa);
template void sum_of_squares(const Half*, int64_t, std::span<double>, Isa);

}  // namespace strake::kernels
