#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

// Runs the source of CUDA kernels on the host, for tests on machines without a GPU: every thread of a block is a fiber
// that gives way at barriers and shuffles; blocks run one after the other. What it can show is wrong arithmetic, wrong
// indices, barriers that not all threads reach, and, by running threads in both orders, most missing barriers. What it
// cannot show is how a device orders memory. No part of the program: only tests link it.
namespace strake::kernels::cuda::emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// In which order the threads of a block go on after a barrier.
enum class Order { kUp, kDown };
void set_order(Order order);

// Runs body() as every thread of a grid. std::logic_error if threads wait for others that never come, and for grids
// that no device takes.
void run(Index3 grid, unsigned threads, const std::function<void()>& body);

const Index3& thread_index();
const Index3& block_index();
const Index3& block_size();
const Index3& grid_size();
void block_barrier();
void warp_barrier();
unsigned lane();

// Calls use(pointers) with what every lane of the caller's warp gave; what they point at stays as it is meanwhile. No
// `use` calls it again.
using WarpPointers = std::array<const void*, 32>;
WarpPointers share_pointer(const void* pointer);
template <typename Use>
void with_warp(const void* pointer, const Use& use) {
  use(share_pointer(pointer));
  warp_barrier();
}

template <typename T>
T shuffle(T value, unsigned from) {
  T taken{};
  with_warp(&value, [&](const WarpPointers& values) { taken = *static_cast<const T*>(values[from]); });
  return taken;
}
template <typename T>
T shuffle_xor(T value, int mask) {
  return shuffle(value, lane() ^ static_cast<unsigned>(mask));
}

}  // namespace strake::kernels::cuda::emulation

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
#define __global__
#define __device__
#define __host__
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // one block is alive at a time
#define threadIdx (::strake::kernels::cuda::emulation::thread_index())
#define blockIdx (::strake::kernels::cuda::emulation::block_index())
#define blockDim (::strake::kernels::cuda::emulation::block_size())
#define gridDim (::strake::kernels::cuda::emulation::grid_size())
#define __syncthreads() ::strake::kernels::cuda::emulation::block_barrier()
#define __syncwarp() ::strake::kernels::cuda::emulation::warp_barrier()
#define __shfl_sync(all, value, lane) ::strake::kernels::cuda::emulation::shuffle(value, static_cast<unsigned>(lane))
#define __shfl_xor_sync(all, value, mask) ::strake::kernels::cuda::emulation::shuffle_xor(value, mask)
// NOLINTEND(bugprone-reserved-identifier)
