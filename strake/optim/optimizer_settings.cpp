// The names by which users ask for an optimizer.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/optim/optimizer.h"

namespace strake::optim {
namespace {

struct Name {
  std::string name;
  OptimizerRule rule;
  std::vector<std::string> arguments;
};

const std::vector<Name>& transformers_names() {
  using enum OptimizerRule;
  static const std::vector<Name> kNames{{"adamw_torch", kAdam, {}},
                                        {"adamw_torch_fused", kAdam, {}},
                                        {"adamw", kAdam, {}},
                                        {"sgd", kSgd, {"momentum", "dampening", "nesterov"}},
                                        {"adagrad", kAdagrad, {"eps", "lr_decay"}},
                                        {"lion", kLion, {}},
                                        {"lion_32bit", kLion, {}},
                                        {"lamb", kLamb, {"max_coeff", "min_coeff"}}};
  return kNames;
}

const std::vector<Name>& deepspeed_names() {
  using enum OptimizerRule;
  static const std::vector<std::string> kAdamArguments{"betas",      "eps",     "bias_correction", "adam_w_mode",
                                                       "torch_adam", "amsgrad", "fused",           "foreach"};
  static const std::vector<Name> kNames{
      {"Adam", kAdam, kAdamArguments},
      {"AdamW", kAdam, kAdamArguments},
      {"Adagrad", kAdagrad, {"eps", "lr_decay", "initial_accumulator_value", "amsgrad"}},
      {"Lamb", kLamb, {"betas", "eps", "bias_correction", "max_coeff", "min_coeff", "eps_inside_sqrt", "amsgrad"}},
      {"Lion", kLion, {"betas"}},
      {"SGD", kSgd, {"momentum", "dampening", "nesterov", "maximize"}}};
  return kNames;
}

const Name& find(const std::vector<Name>& names, const std::string& name, const char* what) {
  const auto found = std::ranges::find(names, name, &Name::name);
  if (found != names.end()) return *found;
  std::vector<std::string> known;
  for (const Name& entry : names) known.push_back(entry.name);
  fail(ErrorKind::kConfig, "{} '{}' is not supported{}; supported are: {}", what, printable(name),
       did_you_mean(name, known), fmt::join(known, ", "));
}

void check_argument(const Name& owner, const std::string& argument, const std::string& source) {
  require(std::ranges::find(owner.arguments, argument) != owner.arguments.end(), ErrorKind::kConfig,
          "{}: {} has no argument '{}'{}; it has: {}", source, owner.name, printable(argument),
          did_you_mean(argument, owner.arguments),
          owner.arguments.empty() ? "none" : fmt::format("{}", fmt::join(owner.arguments, ", ")));
}

// "momentum=0.9,nesterov=true", blanks left out, as JSON.
Json parse_arguments(const Name& owner, std::string text) {
  std::erase(text, ' ');
  Json arguments = Json::object();
  while (!text.empty()) {
    const std::string pair = text.substr(0, text.find(','));
    text.erase(0, pair.size() + 1);
    const size_t equals = pair.find('=');
    require(equals != std::string::npos, ErrorKind::kConfig, "--optim_args: '{}' is not name=value", printable(pair));
    const std::string key = pair.substr(0, equals);
    const std::string value = pair.substr(equals + 1);
    require(key != "weight_decay" && key != "lr", ErrorKind::kConfig, "--optim_args: {} has its own flag, --{}", key,
            key == "lr" ? "learning_rate" : key);
    check_argument(owner, key, "--optim_args");
    require(!arguments.contains(key), ErrorKind::kConfig, "--optim_args: {} is given twice", key);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc{} && end == value.data() + value.size() && key != "nesterov") {
      arguments[key] = number;
      continue;
    }
    const std::set<std::string> yes{"true", "True", "1", "yes"};
    const std::set<std::string> no{"false", "False", "0", "no"};
    require(key == "nesterov" && (yes.contains(value) || no.contains(value)), ErrorKind::kConfig,
            "--optim_args: {}={} is not a {}", key, printable(value), key == "nesterov" ? "boolean" : "number");
    arguments[key] = yes.contains(value);
  }
  return arguments;
}

// What --optim_args and optimizer.params have in common.
void read_common(const Json& arguments, const std::string& source, OptimizerSettings& settings) {
  settings.epsilon = get_or<double>(arguments, "eps", settings.epsilon, source);
  settings.lr_decay = get_or<double>(arguments, "lr_decay", 0, source);
  settings.momentum = get_or<double>(arguments, "momentum", 0, source);
  settings.dampening = get_or<double>(arguments, "dampening", 0, source);
  settings.nesterov = get_or<bool>(arguments, "nesterov", false, source);
  settings.max_coefficient = get_or<double>(arguments, "max_coeff", settings.max_coefficient, source);
  settings.min_coefficient = get_or<double>(arguments, "min_coeff", settings.min_coefficient, source);
}

constexpr double kAdagradEpsilon = 1e-10;

}  // namespace

OptimizerSettings optimizer_settings(const TransformersOptimizer& options) {
  const Name& name = find(transformers_names(), options.name, "--optim");
  OptimizerSettings settings{.rule = name.rule, .betas = options.betas, .epsilon = options.epsilon};
  if (name.rule == OptimizerRule::kAdagrad) settings.epsilon = kAdagradEpsilon;
  read_common(parse_arguments(name, options.arguments), "--optim_args", settings);
  settings.validate();
  return settings;
}

OptimizerSettings optimizer_settings_of_deepspeed(const std::string& type, const Json& params) {
  const std::string source = "optimizer.params";
  const Name& name = find(deepspeed_names(), type, "optimizer.type");
  require(params.is_object(), ErrorKind::kConfig, "{} must be a JSON object", source);
  for (const auto& [key, value] : params.items()) {
    require(key != "max_grad_norm", ErrorKind::kConfig, "{}: write gradient_clipping instead of max_grad_norm", source);
    if (key != "lr" && key != "weight_decay") check_argument(name, key, source);
  }
  for (const char* absent : {"maximize", "eps_inside_sqrt"}) {
    require(!get_or<bool>(params, absent, false, source), ErrorKind::kConfig, "{}: {} is not there", source, absent);
  }
  OptimizerSettings settings{.rule = name.rule};
  if (name.rule == OptimizerRule::kAdagrad) settings.epsilon = kAdagradEpsilon;
  read_common(params, source, settings);
  if (params.contains("betas")) {
    const auto betas = get_required<std::vector<double>>(params, "betas", source);
    require(betas.size() == 2, ErrorKind::kConfig, "{}: betas has {} numbers, not 2", source, betas.size());
    settings.betas = {betas[0], betas[1]};
  }
  settings.bias_correction = get_or<bool>(params, "bias_correction", true, source);
  settings.amsgrad = get_or<bool>(params, "amsgrad", false, source);
  settings.initial_accumulator_value = get_or<double>(params, "initial_accumulator_value", 0, source);
  // As DeepSpeed's engine: only the type Adam listens to adam_w_mode.
  if (type == "Adam" && !get_or<bool>(params, "adam_w_mode", true, source)) {
    settings.weight_decay = kernels::WeightDecay::kInGradient;
  }
  settings.validate();
  return settings;
}

}  // namespace strake::optim
