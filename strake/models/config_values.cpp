#include "strake/models/config_values.h"

#include <algorithm>
#include <array>
#include <utility>

#include "strake/core/error.h"

namespace strake::models {
namespace {

constexpr std::array<std::pair<std::string_view, kernels::Activation>, 12> kActivations{
    {{"gelu", kernels::Activation::kGelu},
     {"gelu_python", kernels::Activation::kGelu},
     {"gelu_new", kernels::Activation::kGeluTanh},
     {"gelu_fast", kernels::Activation::kGeluTanh},
     {"gelu_accurate", kernels::Activation::kGeluTanh},
     {"gelu_pytorch_tanh", kernels::Activation::kGeluTanh},
     {"gelu_python_tanh", kernels::Activation::kGeluTanh},
     {"relu", kernels::Activation::kRelu},
     {"silu", kernels::Activation::kSilu},
     {"swish", kernels::Activation::kSilu},
     {"tanh", kernels::Activation::kTanh},
     {"linear", kernels::Activation::kIdentity}}};

}  // namespace

int64_t bounded(const Json& json, const char* key, int64_t largest, const std::string& source) {
  const auto value = get_required<int64_t>(json, key, source);
  require(value >= 1 && value <= largest, ErrorKind::kConfig, "{}: {} = {} is not in [1, {}]", source, key, value,
          largest);
  return value;
}

double probability(const Json& json, const char* key, double fallback, const std::string& source) {
  const auto value = get_or<double>(json, key, fallback, source);
  require(value >= 0 && value < 1, ErrorKind::kConfig, "{}: {} = {} is not in [0, 1)", source, key, value);
  return value;
}

double norm_epsilon(const Json& json, const char* key, double fallback, const std::string& source) {
  const auto value = get_or<double>(json, key, fallback, source);
  require(value > 0 && value < 1, ErrorKind::kConfig, "{}: {} = {} is not in (0, 1)", source, key, value);
  return value;
}

double initializer_range(const Json& json, const std::string& source) {
  const auto value = get_or<double>(json, "initializer_range", 0.02, source);
  require(value >= 0 && value < 100, ErrorKind::kConfig, "{}: initializer_range = {} makes no sense", source, value);
  return value;
}

kernels::Activation activation(const Json& json, const char* key, const std::string& fallback,
                               const std::string& source) {
  const auto name = get_or<std::string>(json, key, fallback, source);
  const auto found = std::ranges::find(kActivations, name, [](const auto& item) { return item.first; });
  if (found != kActivations.end()) return found->second;
  std::string known;
  for (const auto& item : kActivations) known += (known.empty() ? "" : ", ") + std::string(item.first);
  fail(ErrorKind::kConfig, "{}: activation '{}' is not supported; supported: {}", source, printable(name), known);
}

void refuse_flag(const Json& json, const char* key, const std::string& source) {
  require(!get_or<bool>(json, key, false, source), ErrorKind::kConfig, "{}: {} = true is not supported", source, key);
}

std::string architecture_of(const Json& json) {
  const auto found = json.find("architectures");
  const bool is_known = found != json.end() && found->is_array() && !found->empty() && found->front().is_string();
  return is_known ? found->front().get<std::string>() : "";
}

void refuse_other_loading(const Json& json, const std::string& source) {
  require(!json.contains("auto_map") || json["auto_map"].is_null(), ErrorKind::kConfig,
          "{}: auto_map asks for the model's own Python code, which is never run", source);
  require(!json.contains("quantization_config") || json["quantization_config"].is_null(), ErrorKind::kConfig,
          "{}: quantization_config is not supported: remove it to compute with the weights as they are stored", source);
}

void take_mapped_keys(Json& json, std::span<const MappedKey> keys) {
  for (const MappedKey& mapped : keys) {
    const auto found = json.find(mapped.other);
    if (found == json.end()) continue;
    Json value = std::move(*found);
    json.erase(found);
    json[mapped.key] = std::move(value);
  }
}

}  // namespace strake::models
