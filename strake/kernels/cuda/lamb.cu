#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"
#include "strake/kernels/cuda/pass_parts.cuh"
#include "strake/kernels/global_norm.h"

// LAMB's two passes, see strake/kernels/lamb.h. Products and sums are fused where the CPU's rungs fuse them, so that
// given the same coefficients results have their bits.
namespace strake::kernels::cuda {
namespace {

__device__ float lamb_direction(float p, float m, float v, const LambFactors& f) {
  return fmaf(f.weight_decay, p, m / (sqrtf(v) + f.epsilon));
}

// A block has a tensor's elements in one chunk, as a sum has.
template <typename G, typename M>
__global__ void lamb_moments_kernel(const __grid_constant__ PassWork<LambMoments> work, LambSums* sums) {
  __shared__ double shared[2][kThreads / kWarp];
  const PassRun& run = work.whole;
  const auto part = part_of_block<kSquaresChunk>(work);
  const LambFactors& f = part.factors.tensor;
  const auto* parameters = static_cast<const M*>(run.parameters);
  const auto* gradients = static_cast<const G*>(run.gradients);
  auto* first = static_cast<M*>(run.first);
  auto* second = static_cast<M*>(run.second);
  double of_parameter = 0;
  double of_update = 0;
  for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    const float g = run.gradient_scale * wide(gradients[i]);
    first[i] = narrow<M>(fmaf(f.beta1, wide(first[i]), f.one_minus_beta1 * g));
    second[i] = narrow<M>(fmaf(f.beta2, wide(second[i]), f.one_minus_beta2 * (g * g)));
    const double p = wide(parameters[i]);
    const double u = lamb_direction(wide(parameters[i]), wide(first[i]), wide(second[i]), f);
    of_parameter += p * p;
    of_update += u * u;
  }
  of_parameter = block_sum(of_parameter, shared[0]);
  of_update = block_sum(of_update, shared[1]);
  if (threadIdx.x == 0) sums[part.factors.first_sum + part.place] = {of_parameter, of_update};
}

template <typename G, typename M>
__global__ void lamb_apply_kernel(const __grid_constant__ PassWork<LambFactors> work) {
  const PassRun& run = work.whole;
  const auto part = part_of_block<kElementsOfBlock>(work);
  const LambFactors& f = part.factors;
  const auto* first = static_cast<const M*>(run.first);
  const auto* second = static_cast<const M*>(run.second);
  for_each_element<G, M>(run, part, [&](int64_t i, float p, float) {
    return fmaf(-f.step_size, lamb_direction(p, wide(first[i]), wide(second[i]), f), p);
  });
}

}  // namespace

template <typename G, typename M>
int lamb_moments(const PassRun& whole, const PassPart<LambMoments>* parts, int64_t count, LambSums* sums,
                 void* stream) {
  return launch_pass<kSquaresChunk>(&lamb_moments_kernel<G, M>, {whole, parts, count}, stream, sums);
}
template <typename G, typename M>
int lamb_apply(const PassRun& whole, const PassPart<LambFactors>* parts, int64_t count, void* stream) {
  return launch_pass(&lamb_apply_kernel<G, M>, {whole, parts, count}, stream);
}

#define STRAKE_INSTANTIATE(G, M)                                                                            \
  template int lamb_moments<G, M>(const PassRun&, const PassPart<LambMoments>*, int64_t, LambSums*, void*); \
  template int lamb_apply<G, M>(const PassRun&, const PassPart<LambFactors>*, int64_t, void*);
STRAKE_INSTANTIATE(float, float)
STRAKE_INSTANTIATE(BFloat16, float)
STRAKE_INSTANTIATE(Half, float)
STRAKE_INSTANTIATE(BFloat16, BFloat16)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
