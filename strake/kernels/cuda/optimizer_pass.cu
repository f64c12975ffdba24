#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

// One pass over memory; products and sums are fused where the CPU's rungs fuse them, so that results have their bits.
// The file is compiled without fusing anything else.
namespace strake::kernels::cuda {
namespace {

// Sets each parameter to updated(i, p, g).
template <typename G, typename M, typename Updated>
__device__ void for_each_element(const PassRun& run, const Updated& updated) {
  auto* parameters = static_cast<M*>(run.parameters);
  auto* gradients = static_cast<G*>(run.gradients);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < run.count; i += stride) {
    const float p = updated(i, to_float(parameters[i]), run.gradient_scale * to_float(gradients[i]));
    parameters[i] = from_float<M>(p);
    if (run.bfloat16 != nullptr) run.bfloat16[i] = to_bfloat16(p);
    if (run.half != nullptr) run.half[i] = to_half(p);
    if (run.zeroes_gradients) gradients[i] = from_float<G>(0.0F);
  }
}

template <typename G, typename M, typename T>
__global__ void adam_kernel(PassRun run, AdamFactors f) {
  auto* first = static_cast<T*>(run.first);
  auto* second = static_cast<T*>(run.second);
  auto* largest = static_cast<T*>(run.third);
  for_each_element<G, M>(run, [&](int64_t i, float p, float gradient) {
    const float g = fmaf(f.gradient_decay, p, gradient);
    const float m = fmaf(f.beta1, to_float(first[i]), f.one_minus_beta1 * g);
    float v = fmaf(f.beta2, to_float(second[i]), f.one_minus_beta2 * (g * g));
    first[i] = from_float<T>(m);
    second[i] = from_float<T>(v);
    if (largest != nullptr) {
      const float before = to_float(largest[i]);
      v = before > v ? before : v;
      largest[i] = from_float<T>(v);
    }
    const float denominator = fmaf(f.denominator_factor, sqrtf(v), f.epsilon);
    return fmaf(-f.step_size, m / denominator, f.shrink * p);
  });
}

template <typename G, typename M>
__global__ void adagrad_kernel(PassRun run, AdagradFactors f) {
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, [&](int64_t i, float p, float gradient) {
    const float g = fmaf(f.gradient_decay, p, gradient);
    const float s = fmaf(g, g, to_float(first[i]));
    first[i] = from_float<M>(s);
    return fmaf(-f.step_size, g / (sqrtf(s) + f.epsilon), p);
  });
}

template <typename G, typename M>
__global__ void lion_kernel(PassRun run, LionFactors f) {
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, [&](int64_t i, float p, float g) {
    const float m = to_float(first[i]);
    const float direction = fmaf(f.beta1, m, f.one_minus_beta1 * g);
    // 0 and NaN go through as they are.
    const float move = direction < 0 ? f.step_size : direction > 0 ? -f.step_size : direction;
    first[i] = from_float<M>(fmaf(f.beta2, m, f.one_minus_beta2 * g));
    return fmaf(f.shrink, p, move);
  });
}

template <typename G, typename M>
__global__ void sgd_kernel(PassRun run, SgdFactors f) {
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, [&](int64_t i, float p, float gradient) {
    const float g = fmaf(f.gradient_decay, p, gradient);
    if (first == nullptr) return fmaf(-f.step_size, g, p);
    const float b = fmaf(f.momentum, to_float(first[i]), f.share * g);
    first[i] = from_float<M>(b);
    return fmaf(-f.step_size, f.nesterov ? fmaf(f.momentum, b, g) : b, p);
  });
}

constexpr int64_t kMostBlocks = 16384;

template <typename Factors>
int launch_pass(void (*kernel)(PassRun, Factors), const PassRun& run, const Factors& factors, void* stream) {
  const int64_t blocks = ceil_div(run.count, kThreads);
  return launch(kernel, {blocks < kMostBlocks ? blocks : kMostBlocks}, kThreads, stream, run, factors);
}

}  // namespace

template <typename G, typename M, typename T>
int adam(const PassRun& run, const AdamFactors& factors, void* stream) {
  return launch_pass(&adam_kernel<G, M, T>, run, factors, stream);
}
template <typename G, typename M>
int adagrad(const PassRun& run, const AdagradFactors& factors, void* stream) {
  return launch_pass(&adagrad_kernel<G, M>, run, factors, stream);
}
template <typename G, typename M>
int lion(const PassRun& run, const LionFactors& factors, void* stream) {
  return launch_pass(&lion_kernel<G, M>, run, factors, stream);
}
template <typename G, typename M>
int sgd(const PassRun& run, const SgdFactors& factors, void* stream) {
  return launch_pass(&sgd_kernel<G, M>, run, factors, stream);
}

#define STRAKE_INSTANTIATE(G, M)                                            \
  template int adam<G, M, M>(const PassRun&, const AdamFactors&, void*);    \
  template int adagrad<G, M>(const PassRun&, const AdagradFactors&, void*); \
  template int lion<G, M>(const PassRun&, const LionFactors&, void*);       \
  template int sgd<G, M>(const PassRun&, const SgdFactors&, void*);
STRAKE_INSTANTIATE(float, float)
STRAKE_INSTANTIATE(BFloat16, float)
STRAKE_INSTANTIATE(Half, float)
STRAKE_INSTANTIATE(BFloat16, BFloat16)
#undef STRAKE_INSTANTIATE
template int adam<Half, Half, float>(const PassRun&, const AdamFactors&, void*);

}  // namespace strake::kernels::cuda
