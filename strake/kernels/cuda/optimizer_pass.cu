#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"
#include "strake/kernels/cuda/pass_parts.cuh"

// One pass over memory; products and sums are fused where the CPU's rungs fuse them, so that results have their bits.
// The file is compiled without fusing anything else.
namespace strake::kernels::cuda {
namespace {

template <typename G, typename M, typename T>
__global__ void adam_kernel(const __grid_constant__ PassWork<AdamFactors> work) {
  const PassRun& run = work.whole;
  const auto part = part_of_block<kElementsOfBlock>(work);
  const AdamFactors& f = part.factors;
  auto* first = static_cast<T*>(run.first);
  auto* second = static_cast<T*>(run.second);
  auto* largest = static_cast<T*>(run.third);
  for_each_element<G, M>(run, part, [&](int64_t i, float p, float gradient) {
    const float g = fmaf(f.gradient_decay, p, gradient);
    const float m = fmaf(f.beta1, wide(first[i]), f.one_minus_beta1 * g);
    float v = fmaf(f.beta2, wide(second[i]), f.one_minus_beta2 * (g * g));
    first[i] = narrow<T>(m);
    second[i] = narrow<T>(v);
    if (largest != nullptr) {
      const float before = wide(largest[i]);
      v = before > v ? before : v;
      largest[i] = narrow<T>(v);
    }
    const float denominator = fmaf(f.denominator_factor, sqrtf(v), f.epsilon);
    return fmaf(-f.step_size, m / denominator, f.shrink * p);
  });
}

template <typename G, typename M>
__global__ void adagrad_kernel(const __grid_constant__ PassWork<AdagradFactors> work) {
  const PassRun& run = work.whole;
  const auto part = part_of_block<kElementsOfBlock>(work);
  const AdagradFactors& f = part.factors;
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, part, [&](int64_t i, float p, float gradient) {
    const float g = fmaf(f.gradient_decay, p, gradient);
    const float s = fmaf(g, g, wide(first[i]));
    first[i] = narrow<M>(s);
    return fmaf(-f.step_size, g / (sqrtf(s) + f.epsilon), p);
  });
}

template <typename G, typename M>
__global__ void lion_kernel(const __grid_constant__ PassWork<LionFactors> work) {
  const PassRun& run = work.whole;
  const auto part = part_of_block<kElementsOfBlock>(work);
  const LionFactors& f = part.factors;
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, part, [&](int64_t i, float p, float g) {
    const float m = wide(first[i]);
    const float direction = fmaf(f.beta1, m, f.one_minus_beta1 * g);
    // 0 and NaN go through as they are.
    const float move = direction < 0 ? f.step_size : direction > 0 ? -f.step_size : direction;
    first[i] = narrow<M>(fmaf(f.beta2, m, f.one_minus_beta2 * g));
    return fmaf(f.shrink, p, move);
  });
}

template <typename G, typename M>
__global__ void sgd_kernel(const __grid_constant__ PassWork<SgdFactors> work) {
  const PassRun& run = work.whole;
  const auto part = part_of_block<kElementsOfBlock>(work);
  const SgdFactors& f = part.factors;
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, part, [&](int64_t i, float p, float gradient) {
    const float g = fmaf(f.gradient_decay, p, gradient);
    if (first == nullptr) return fmaf(-f.step_size, g, p);
    const float b = fmaf(f.momentum, wide(first[i]), f.share * g);
    first[i] = narrow<M>(b);
    return fmaf(-f.step_size, f.nesterov ? fmaf(f.momentum, b, g) : b, p);
  });
}

}  // namespace

template <typename G, typename M, typename T>
int adam(const PassRun& whole, const PassPart<AdamFactors>* parts, int64_t count, void* stream) {
  return launch_pass(&adam_kernel<G, M, T>, {whole, parts, count}, stream);
}
template <typename G, typename M>
int adagrad(const PassRun& whole, const PassPart<AdagradFactors>* parts, int64_t count, void* stream) {
  return launch_pass(&adagrad_kernel<G, M>, {whole, parts, count}, stream);
}
template <typename G, typename M>
int lion(const PassRun& whole, const PassPart<LionFactors>* parts, int64_t count, void* stream) {
  return launch_pass(&lion_kernel<G, M>, {whole, parts, count}, stream);
}
template <typename G, typename M>
int sgd(const PassRun& whole, const PassPart<SgdFactors>* parts, int64_t count, void* stream) {
  return launch_pass(&sgd_kernel<G, M>, {whole, parts, count}, stream);
}

#define STRAKE_INSTANTIATE(G, M)                                                               \
  template int adam<G, M, M>(const PassRun&, const PassPart<AdamFactors>*, int64_t, void*);    \
  template int adagrad<G, M>(const PassRun&, const PassPart<AdagradFactors>*, int64_t, void*); \
  template int lion<G, M>(const PassRun&, const PassPart<LionFactors>*, int64_t, void*);       \
  template int sgd<G, M>(const PassRun&, const PassPart<SgdFactors>*, int64_t, void*);
STRAKE_INSTANTIATE(float, float)
STRAKE_INSTANTIATE(BFloat16, float)
STRAKE_INSTANTIATE(Half, float)
STRAKE_INSTANTIATE(BFloat16, BFloat16)
#undef STRAKE_INSTANTIATE
template int adam<Half, Half, float>(const PassRun&, const PassPart<AdamFactors>*, int64_t, void*);

}  // namespace strake::kernels::cuda
