#include "strake/tensors/linear_products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <cstdlib>
#include <string_view>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"

namespace strake::tensors {
namespace {

// Inductor's fused linear operator: the only way to oneDNN's fp32 product that the wheel exports.
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

std::optional<c10::TypedOperatorHandle<LinearPointwise>> find_linear_pointwise() {
  const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!schema) return std::nullopt;
  return schema->typed<LinearPointwise>();
}

bool choose_onednn() {
  // oneDNN keeps the machine code of the last 1024 shapes. Packed batches differ in length from step to step, so all
  // but the present step's are dead weight, several hundred megabytes of it.
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64", 0);
  const char* forced = std::getenv("STRAKE_MATMUL");
  const std::string_view name = forced == nullptr ? "" : forced;
  require(name.empty() || name == "onednn" || name == "aten", ErrorKind::kUsage,
          "STRAKE_MATMUL={} is neither onednn nor aten", name);
  const bool available = find_linear_pointwise().has_value();
  require(name != "onednn" || available, ErrorKind::kUsage, "STRAKE_MATMUL=onednn: this libtorch lacks the operator");
  return name.empty() ? available && cpu_features().is_amd : name == "onednn";
}

bool use_onednn() {
  static const bool chosen = choose_onednn();
  return chosen;
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  static const auto op = *find_linear_pointwise();
  return op.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
}

at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat); }

int64_t fp32_sums(int64_t numel, int64_t element_size) {
  constexpr int64_t kFp32 = sizeof(float);
  return element_size < kFp32 ? numel * kFp32 : 0;
}

}  // namespace

at::Tensor linear(const at::Tensor& x_ti, const at::Tensor& weight_oi, const std::optional<at::Tensor>& bias_o) {
  if (x_ti.scalar_type() == at::kHalf) {
    const auto bias = bias_o ? std::optional(wide(*bias_o)) : std::nullopt;
    return tensors::linear(wide(x_ti), wide(weight_oi), bias).to(at::kHalf);
  }
  return use_onednn() ? onednn_linear(x_ti, weight_oi, bias_o) : at::linear(x_ti, weight_oi, bias_o);
}

at::Tensor linear_input_gradient(const at::Tensor& dy_to, const at::Tensor& weight_oi) {
  if (dy_to.scalar_type() == at::kHalf) return linear_input_gradient(wide(dy_to), wide(weight_oi)).to(at::kHalf);
  return use_onednn() ? onednn_linear(dy_to, weight_oi.t(), std::nullopt) : at::mm(dy_to, weight_oi);
}

at::Tensor linear_weight_gradient(const at::Tensor& dy_to, const at::Tensor& x_ti) {
  if (dy_to.scalar_type() == at::kHalf) return linear_weight_gradient(wide(dy_to), wide(x_ti)).to(at::kHalf);
  return use_onednn() ? onednn_linear(dy_to.t(), x_ti.t(), std::nullopt) : at::mm(dy_to.t(), x_ti);
}

int64_t linear_input_gradient_workspace(int64_t tokens, int64_t inputs, int64_t element_size) {
  return use_onednn() ? fp32_sums(tokens * inputs, element_size) : 0;
}

int64_t linear_weight_gradient_workspace(int64_t tokens, int64_t outputs, int64_t inputs, int64_t element_size) {
  return use_onednn() ? tokens * outputs * element_size + fp32_sums(outputs * inputs, element_size) : 0;
}

int64_t widened_products_workspace(int64_t tokens, int64_t outputs, int64_t inputs) {
  constexpr int64_t kFp32 = sizeof(float);
  return (tokens * inputs + outputs * inputs + tokens * outputs) * kFp32;
}

const char* matmul_backend() { return use_onednn() ? "onednn" : "aten"; }

}  // namespace strake::tensors
