#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "strake/kernels/half.h"

// The instructions that attention needs beside what C++ has. Those of tensor cores (PTX ISA, "Warp-level matrix
// instructions") a whole warp calls; with g = lane / 4 and t = lane % 4, a lane has of
//   left  [16, 16]  rows g, g + 8, g, g + 8, columns 2 t + {0, 1}, the last two words 8 columns further
//   right [16, 8]   rows 2 t + {0, 1}, and those + 8, of column g
//   sums  [16, 8]   rows g and g + 8, columns 2 t + {0, 1} of each
namespace strake::kernels::cuda {

// sums += left . right, in fp32.
template <typename T>
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2]);
template <>
__device__ inline void multiply_add<BFloat16>(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
template <>
__device__ inline void multiply_add<Half>(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

// Four matrices [8, 8] of 16-bit elements from shared memory: lane 8 i + r points at row r of matrix i, 16-byte
// aligned. words[i] is row g, columns 2 t + {0, 1}, of matrix i; transposed, rows 2 t + {0, 1}, column g.
__device__ inline void load_matrices(uint32_t (&words)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&words)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// Copies 16 bytes from global to shared memory while the thread goes on; zeros if they are not `there`. Both addresses
// are on 16 bytes. end_copies() ends a batch of copies; wait_for_copies() waits for all batches but the last kLater.
// Threads of the block see the copies of those that waited before a barrier.
__device__ inline void copy_beside(void* shared, const void* global, bool there) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLater = 0>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

// Two numbers rounded to T, `low` in the lower half of the word.
template <typename T>
__device__ inline uint32_t pack(float low, float high);
template <>
__device__ inline uint32_t pack<BFloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return uint32_t{__bfloat16_as_ushort(pair.x)} | uint32_t{__bfloat16_as_ushort(pair.y)} << 16;
}
template <>
__device__ inline uint32_t pack<Half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return uint32_t{__half_as_ushort(__low2half(pair))} | uint32_t{__half_as_ushort(__high2half(pair))} << 16;
}

}  // namespace strake::kernels::cuda
