#include <cmath>
#include <numbers>

#include "strake/kernels/bias_activation_rungs.h"

namespace strake::kernels::reference {
namespace {

constexpr float kRootTwoOverPi = 0.7978845608F;
constexpr float kCubic = 0.044715F;

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float normal_cdf(float x) { return 0.5F * std::erfc(-x / std::numbers::sqrt2_v<float>); }
float normal_density(float x) {
  return std::exp(-0.5F * x * x) * std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
}
float gelu_tanh_argument(float x) { return kRootTwoOverPi * (x + kCubic * x * x * x); }

float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::kGelu:
      return x * normal_cdf(x);
    case Activation::kGeluTanh:
      return 0.5F * x * (1.0F + std::tanh(gelu_tanh_argument(x)));
    case Activation::kRelu:
      return x < 0 ? 0.0F : x;
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kIdentity:
      return x;
  }
  return x;
}

float derivative(Activation kind, float x) {
  switch (kind) {
    case Activation::kGelu:
      return normal_cdf(x) + x * normal_density(x);
    case Activation::kGeluTanh: {
      const float t = std::tanh(gelu_tanh_argument(x));
      return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kRootTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
    }
    case Activation::kRelu:
      return x > 0 ? 1.0F : 0.0F;
    case Activation::kSilu:
      return sigmoid(x) * (1.0F + x * (1.0F - sigmoid(x)));
    case Activation::kTanh:
      return 1.0F - std::tanh(x) * std::tanh(x);
    case Activation::kIdentity:
      return 1.0F;
  }
  return 1.0F;
}

template <typename T>
float biased(const T* x, const T* bias, int64_t row, int64_t c) {
  return to_float(x[row + c]) + (bias == nullptr ? 0.0F : to_float(bias[c]));
}

template <typename T>
void forward(const BiasActivationForward<T>& args, int64_t begin, int64_t end) {
  for (int64_t row = begin * args.columns; row < end * args.columns; row += args.columns) {
    for (int64_t c = 0; c < args.columns; ++c) {
      args.y[row + c] = from_float<T>(activate(args.activation, biased(args.x, args.bias, row, c)));
    }
  }
}

template <typename T>
void backward(const BiasActivationBackward<T>& args, int64_t begin, int64_t end, float* dbias) {
  for (int64_t row = begin * args.columns; row < end * args.columns; row += args.columns) {
    for (int64_t c = 0; c < args.columns; ++c) {
      const float dx = to_float(args.dy[row + c]) * derivative(args.activation, biased(args.x, args.bias, row, c));
      args.dx[row + c] = from_float<T>(dx);
      if (dbias != nullptr) dbias[c] += dx;
    }
  }
}

}  // namespace

const BiasActivationRung<float> kBiasActivationFloat{Isa::kReference, &forward<float>, &backward<float>};
const BiasActivationRung<BFloat16> kBiasActivationBFloat16{Isa::kReference, &forward<BFloat16>, &backward<BFloat16>};
const BiasActivationRung<Half> kBiasActivationHalf{Isa::kReference, &forward<Half>, &backward<Half>};

}  // namespace strake::kernels::reference
