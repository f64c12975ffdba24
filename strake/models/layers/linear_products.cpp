#include "strake/models/layers/linear_products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/kernels/matmul.h"
#include "strake/models/layers/node.h"

namespace strake::models::layers {
namespace {

constexpr std::array kLibraryNames{"strake", "onednn", "aten"};

// Inductor's fused linear operator: the only way to oneDNN's fp32 product that the wheel exports.
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

std::optional<c10::TypedOperatorHandle<LinearPointwise>> find_linear_pointwise() {
  const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!schema) return std::nullopt;
  return schema->typed<LinearPointwise>();
}

std::optional<MatmulLibrary> forced_library() {
  const char* name = std::getenv("STRAKE_MATMUL");
  if (name == nullptr || *name == '\0') return std::nullopt;
  for (size_t i = 0; i < kLibraryNames.size(); ++i) {
    if (std::string_view(name) == kLibraryNames.at(i)) return static_cast<MatmulLibrary>(i);
  }
  fail(ErrorKind::kUsage, "STRAKE_MATMUL={} is none of {}", name, fmt::join(kLibraryNames, ", "));
}

// Our own kernels wherever there are some for vectors: a row's result does not depend on the rows beside it, nor on the
// number of threads, which all promises of equal bits build upon, and they allocate no workspace. Nor does it cost
// time: steps of fine-tuning RoBERTa-base take as long with oneDNN's products on a Zen 5 (and twice as long with
// MKL's), 1.05 times as long with MKL's in fp32 and 1.19 times with ATen's in bf16 on an Intel with AMX.
MatmulLibrary choose_library() {
  // oneDNN keeps the machine code of the last 1024 shapes. Packed batches differ in length from step to step, so all
  // but the present step's are dead weight, several hundred megabytes of it.
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64", 0);
  const std::optional<MatmulLibrary> forced = forced_library();
  require(forced != MatmulLibrary::kOnednn || find_linear_pointwise().has_value(), ErrorKind::kUsage,
          "STRAKE_MATMUL=onednn: this libtorch lacks the operator");
  return forced.value_or(usable(Isa::kAvx2) ? MatmulLibrary::kStrake : MatmulLibrary::kAten);
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  static const auto op = *find_linear_pointwise();
  try {
    return op.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
  } catch (const std::exception& error) {
    const bool may_be_missing = x.scalar_type() == at::kBFloat16 && !cpu_features().avx512;
    if (!may_be_missing) throw;
    fail(ErrorKind::kUsage, "STRAKE_MATMUL=onednn: no product of {} on {}: {}", c10::toString(x.scalar_type()),
         describe_cpu(), error.what());
  }
}

template <typename T>
kernels::MatrixOperand<T> operand(const at::Tensor& matrix) {
  const bool rows = matrix.stride(1) == 1 && (matrix.stride(0) >= matrix.size(1) || matrix.size(0) <= 1);
  require(rows || (matrix.stride(0) == 1 && (matrix.stride(1) >= matrix.size(0) || matrix.size(1) <= 1)),
          ErrorKind::kInternal, "product of a matrix of strides {} and {}", matrix.stride(0), matrix.stride(1));
  // The stride of a single row or column may be anything.
  const auto order = rows ? kernels::Order::kRows : kernels::Order::kColumns;
  return {const_storage<T>(matrix), std::max(matrix.stride(rows ? 0 : 1), matrix.size(rows ? 1 : 0)), order};
}

void require_factors(const at::Tensor& a, const at::Tensor& b) {
  require(a.size(1) == b.size(0) && a.scalar_type() == b.scalar_type(), ErrorKind::kInternal,
          "product of [{}, {}] and [{}, {}]", a.size(0), a.size(1), b.size(0), b.size(1));
  require(a.scalar_type() == at::kFloat || a.scalar_type() == at::kBFloat16, ErrorKind::kInternal,
          "product of neither fp32 nor bf16");
}

// a[M, K] b[K, N]; `result_as(T*)` gives where the result goes, for operands of type T.
template <typename ResultAs>
void multiply_own(const at::Tensor& a, const at::Tensor& b, const kernels::SharedPack& pack,
                  const ResultAs& result_as) {
  require_factors(a, b);
  const auto multiply = [&]<typename T, typename Out>(const kernels::MatmulResult<T, Out>& result) {
    const kernels::Matmul<T, Out> product{.rows = a.size(0),
                                          .columns = b.size(1),
                                          .depth = a.size(1),
                                          .a = operand<T>(a),
                                          .b = operand<T>(b),
                                          .result = result};
    if (pack.weights != nullptr && pack.weights->can_keep<T>(product.depth, product.columns)) {
      kernels::matmul(product, pack.weights->get(pack.name, product.b, product.depth, product.columns));
    } else {
      kernels::matmul(product);
    }
  };
  if (a.scalar_type() == at::kFloat) {
    multiply(result_as(static_cast<float*>(nullptr)));
  } else {
    multiply(result_as(static_cast<kernels::BFloat16*>(nullptr)));
  }
}

// [M, N] = a[M, K] b[K, N], and what `finish` sets.
template <typename Finish>
at::Tensor own_product(const at::Tensor& a, const at::Tensor& b, const kernels::SharedPack& pack,
                       const Finish& finish) {
  at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options());
  multiply_own(a, b, pack, [&]<typename T>(T*) {
    kernels::MatmulResult<T, T> result{.c = storage<T>(c), .stride = b.size(1)};
    finish(result);
    return result;
  });
  return c;
}

bool is_widened(const at::Tensor& operand) { return operand.scalar_type() == at::kHalf && !operand.is_cuda(); }

at::Tensor wide(const at::Tensor& half) { return half.to(at::kFloat); }

at::Tensor own_product(const at::Tensor& a, const at::Tensor& b, const kernels::SharedPack& pack = {}) {
  return own_product(a, b, pack, [](auto&) {});
}

template <typename T, typename Out>
void set_bias(kernels::MatmulResult<T, Out>& result, const at::Tensor& bias, int64_t outputs) {
  require(bias.numel() == outputs && bias.is_contiguous(), ErrorKind::kInternal, "bias of {} numbers for {} outputs",
          bias.numel(), outputs);
  result.bias = const_storage<T>(bias);
}

int64_t fp32_sums(int64_t numel, int64_t element_size) {
  constexpr int64_t kFp32 = sizeof(float);
  return element_size < kFp32 ? numel * kFp32 : 0;
}

bool copies_operands() { return matmul_library() == MatmulLibrary::kOnednn; }

}  // namespace

MatmulLibrary matmul_library() {
  static const MatmulLibrary library = choose_library();
  return library;
}

MatmulLibrary matmul_library_for(const at::Tensor& operand) {
  return operand.is_cuda() ? MatmulLibrary::kAten : matmul_library();
}

const char* to_string(MatmulLibrary library) { return kLibraryNames.at(static_cast<size_t>(library)); }

at::Tensor linear_product(const at::Tensor& x_ti, const at::Tensor& weight_oi, const std::optional<at::Tensor>& bias_o,
                          MatmulLibrary library, const kernels::SharedPack& pack) {
  if (is_widened(x_ti)) {
    const auto bias = bias_o ? std::optional(wide(*bias_o)) : std::nullopt;
    return linear_product(wide(x_ti), wide(weight_oi), bias, library).to(at::kHalf);
  }
  if (library == MatmulLibrary::kOnednn) return onednn_linear(x_ti, weight_oi, bias_o);
  if (library == MatmulLibrary::kAten) return at::linear(x_ti, weight_oi, bias_o);
  return own_product(x_ti, weight_oi.t(), pack, [&](auto& result) {
    if (bias_o) set_bias(result, *bias_o, weight_oi.size(0));
  });
}

at::Tensor linear_input_gradient(const at::Tensor& dy_to, const at::Tensor& weight_oi, MatmulLibrary library,
                                 const kernels::SharedPack& pack) {
  if (is_widened(dy_to)) {
    return linear_input_gradient(wide(dy_to), wide(weight_oi), library).to(at::kHalf);
  }
  if (library == MatmulLibrary::kOnednn) return onednn_linear(dy_to, weight_oi.t(), std::nullopt);
  return library == MatmulLibrary::kAten ? at::mm(dy_to, weight_oi) : own_product(dy_to, weight_oi, pack);
}

at::Tensor linear_weight_gradient(const at::Tensor& dy_to, const at::Tensor& x_ti, MatmulLibrary library) {
  if (is_widened(dy_to)) {
    return linear_weight_gradient(wide(dy_to), wide(x_ti), library).to(at::kHalf);
  }
  if (library == MatmulLibrary::kOnednn) return onednn_linear(dy_to.t(), x_ti.t(), std::nullopt);
  if (library != MatmulLibrary::kAten) return own_product(dy_to.t(), x_ti);
  // The sum that it is added to is fp32: cuBLAS need not round before.
  return dy_to.is_cuda() && dy_to.element_size() < 4 ? at::mm(dy_to.t(), x_ti, at::kFloat) : at::mm(dy_to.t(), x_ti);
}

bool can_multiply_in_place(c10::ScalarType dtype, MatmulLibrary library) {
  return library == MatmulLibrary::kStrake && dtype != at::kHalf;
}

void linear_weight_gradient_into(const at::Tensor& dy_to, const at::Tensor& x_ti, const at::Tensor& sum_oi,
                                 kernels::Store store) {
  require(sum_oi.scalar_type() == at::kFloat && sum_oi.is_contiguous() && sum_oi.size(0) == dy_to.size(1) &&
              sum_oi.size(1) == x_ti.size(1),
          ErrorKind::kInternal, "a weight gradient's sum is fp32, [outputs, inputs] and contiguous");
  if (dy_to.is_cuda()) {
    at::Tensor sum = sum_oi;
    if (store == kernels::Store::kAdd) {
      sum.add_(linear_weight_gradient(dy_to, x_ti, MatmulLibrary::kAten));
    } else if (dy_to.element_size() < 4) {
      at::mm_out(sum, dy_to.t(), x_ti, at::kFloat);
    } else {
      at::mm_out(sum, dy_to.t(), x_ti);
    }
    return;
  }
  multiply_own(dy_to.t(), x_ti, {}, [&]<typename T>(T*) {
    return kernels::MatmulResult<T, float>{.c = storage<float>(sum_oi), .stride = x_ti.size(1), .store = store};
  });
}

ActivatedLinear activated_linear_product(const LinearOperands& operands, kernels::Activation activation,
                                         KeepProduct keep, MatmulLibrary library) {
  const auto& [x, weight, bias, pack] = operands;
  ActivatedLinear result;
  if (library == MatmulLibrary::kStrake && x.scalar_type() != at::kHalf) {
    if (keep == KeepProduct::kYes) result.product = at::empty({x.size(0), weight.size(0)}, x.options());
    result.y = own_product(x, weight.t(), pack, [&]<typename T>(kernels::MatmulResult<T, T>& stored) {
      set_bias(stored, bias, weight.size(0));
      stored.activation = activation;
      if (keep == KeepProduct::kYes) stored.product = storage<T>(result.product);
    });
    return result;
  }
  const at::Tensor product = linear_product(x, weight, std::nullopt, library);
  result.y = keep == KeepProduct::kYes ? at::empty_like(product) : product;
  if (keep == KeepProduct::kYes) result.product = product;
  dispatch_storage(product, [&]<typename T>(T*, const auto& place) {
    kernels::bias_activation_forward<T>({.x = const_storage<T>(product),
                                         .bias = const_storage<T>(bias),
                                         .y = storage<T>(result.y),
                                         .tokens = product.size(0),
                                         .columns = product.size(1),
                                         .activation = activation},
                                        place);
  });
  return result;
}

int64_t linear_input_gradient_workspace(int64_t tokens, int64_t inputs, int64_t element_size) {
  return copies_operands() ? fp32_sums(tokens * inputs, element_size) : 0;
}

int64_t linear_weight_gradient_workspace(int64_t tokens, int64_t outputs, int64_t inputs, int64_t element_size) {
  return copies_operands() ? tokens * outputs * element_size + fp32_sums(outputs * inputs, element_size) : 0;
}

int64_t widened_products_workspace(int64_t tokens, int64_t outputs, int64_t inputs) {
  constexpr int64_t kFp32 = sizeof(float);
  return (tokens * inputs + outputs * inputs + tokens * outputs) * kFp32;
}

}  // namespace strake::models::layers
