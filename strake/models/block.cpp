#include "strake/models/block.h"

#include <algorithm>

namespace strake::models {

kernels::Dropout StepContext::dropout(uint32_t site, double p) const {
  if (!dropout_key || p <= 0) return {};
  return {.key = *dropout_key, .site = site, .p = static_cast<float>(p)};
}

bool Block::is_trained() const {
  return std::ranges::any_of(parameters_, [](const ParameterSpec& spec) { return spec.trained == Trained::kYes; });
}

Parameters Block::view(const at::Tensor& flat, GradientSink* sink) const {
  Parameters views;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    views.push_back({tensors::FlatLayout::view(flat, layout_.entries()[i]), i, sink});
  }
  return views;
}

size_t Block::add(ParameterSpec spec) {
  layout_.add(spec.name, spec.shape);
  parameters_.push_back(std::move(spec));
  return parameters_.size() - 1;
}

Affine Block::add_norm(const std::string& name, const std::string& checkpoint_name, int64_t width) {
  const size_t weight = add({.name = name + ".weight",
                             .shape = {width},
                             .initialization = Initialization::kOnes,
                             .decay = WeightDecay::kExempt,
                             .checkpoint_names = {checkpoint_name + ".weight"}});
  const size_t bias = add({.name = name + ".bias",
                           .shape = {width},
                           .initialization = Initialization::kZeros,
                           .decay = WeightDecay::kExempt,
                           .checkpoint_names = {checkpoint_name + ".bias"}});
  return {weight, bias};
}

size_t Block::tie(TiedParameter parameter) {
  tied_.push_back(parameter);
  return tied_.size() - 1;
}

}  // namespace strake::models
