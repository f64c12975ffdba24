#pragma once

#include <algorithm>
#include <type_traits>

#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/table.h"

// How the optimizers' kernels take many parts of a window in one launch: starting work on a device costs more than
// updating a small tensor.
namespace strake::kernels::cuda {

inline constexpr int64_t kElementsOfBlock = 16 * kThreads;
inline constexpr int kMostParts = 64;                // of a launch
inline constexpr size_t kMostParameterBytes = 4096;  // that every device takes

// What a launch works on. As a kernel's parameter it needs no memory of the device, and as a __grid_constant__ no
// thread copies the table to find its part in it.
template <typename Factors>
struct PassWork {
  PassRun whole;
  int count;                         // of parts, at least 1
  unsigned first_block[kMostParts];  // of each part's blocks
  PassPart<Factors> parts[kMostParts];
};

// A block's piece of one of the parts: `place` counts the pieces of that part.
template <typename Factors>
struct BlockPart : PassPart<Factors> {
  int64_t place;
};

// Parts are cut where a multiple of kElements elements of the window ends.
template <int64_t kElements, typename Factors>
__device__ BlockPart<Factors> part_of_block(const PassWork<Factors>& work) {
  int found = 0;  // the last part that begins with this block or an earlier one
  for (int end = work.count; end - found > 1;) {
    const int middle = (found + end) / 2;
    if (work.first_block[middle] <= blockIdx.x) {
      found = middle;
    } else {
      end = middle;
    }
  }
  BlockPart<Factors> part{work.parts[found], int64_t{blockIdx.x - work.first_block[found]}};
  const int64_t cut = (part.begin / kElements + part.place) * kElements;
  if (part.place > 0) part.begin = cut;
  if (part.end - cut > kElements) part.end = cut + kElements;
  return part;
}

// Sets each parameter of the part to updated(i, p, g).
template <typename G, typename M, typename Part, typename Updated>
__device__ void for_each_element(const PassRun& run, const Part& part, const Updated& updated) {
  auto* parameters = static_cast<M*>(run.parameters);
  auto* gradients = static_cast<G*>(run.gradients);
  for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    const float p = updated(i, wide(parameters[i]), run.gradient_scale * wide(gradients[i]));
    parameters[i] = narrow<M>(p);
    if (run.bfloat16 != nullptr) run.bfloat16[i] = narrow<BFloat16>(p);
    if (run.half != nullptr) run.half[i] = narrow<Half>(p);
    if (run.zeroes_gradients) gradients[i] = narrow<G>(0.0F);
  }
}

// A window and `count` disjoint parts of it.
template <typename Factors>
struct PassParts {
  const PassRun& whole;
  const PassPart<Factors>* parts;
  int64_t count;
};

// Runs kernel(work, more...) with blocks that take part_of_block<kElements>(work).
template <int64_t kElements = kElementsOfBlock, typename Factors, typename... More>
int launch_pass(void (*kernel)(PassWork<Factors>, More...), const PassParts<Factors>& all, void* stream,
                std::type_identity_t<More>... more) {
  static_assert((sizeof(PassWork<Factors>) + ... + sizeof(More)) <= kMostParameterBytes);
  for (int64_t done = 0; done < all.count; done += kMostParts) {
    PassWork<Factors> work{.whole = all.whole,
                           .count = static_cast<int>(std::min<int64_t>(all.count - done, kMostParts)),
                           .first_block = {},
                           .parts = {}};
    int64_t blocks = 0;
    for (int i = 0; i < work.count; ++i) {
      const PassPart<Factors>& part = work.parts[i] = all.parts[done + i];
      work.first_block[i] = static_cast<unsigned>(blocks);
      blocks += ceil_div(part.end, kElements) - part.begin / kElements;
    }
    if (const int error = launch(kernel, {blocks}, kThreads, stream, work, more...); error != 0) return error;
  }
  return 0;
}

}  // namespace strake::kernels::cuda
