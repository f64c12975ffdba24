#include "strake/integrations/ds_config_resolver.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations {

namespace {

bool is_of_optional_section(std::string_view key) {
  constexpr std::array<std::string_view, 6> kSections{"optimizer.",      "tensorboard.",  "csv_monitor.",
                                                      "flops_profiler.", "comms_logger.", "nebula."};
  return std::ranges::any_of(kSections, [&](std::string_view section) { return key.starts_with(section); });
}

std::string no_effect(const char* origin, const KeyRule& rule) {
  return fmt::format("{}, no effect: {}", origin, rule.reason);
}

}  // namespace

DsSettings DsResolver::run() {
  start();
  resolve_batch();
  const training::TrainingOptions& options = inputs_.options;
  link("dataloader_drop_last", {"dataloader_drop_last", options.dataloader_drop_last}, Missing::kFlag);
  link("gradient_clipping", {"max_grad_norm", options.max_grad_norm}, Missing::kFlag);
  link("fp16.enabled", {"fp16", options.fp16}, Missing::kFlag);
  link("bf16.enabled", {"bf16", options.bf16}, Missing::kFlag);
  link("checkpoint.writer.decoupled", {"async_save", options.async_save}, Missing::kFlag);
  resolve_optimizer();
  resolve_scheduler();
  resolve_zero();
  resolve_monitors();
  check_precision();
  check_zero();
  std::vector<std::string> all = mismatches_;
  all.insert(all.end(), problems_.begin(), problems_.end());
  try {
    require_no_problems(all, file_.source);
  } catch (Error& error) {
    if (!mismatches_.empty()) {
      const bool none_may = without_auto_.size() == mismatches_.size();
      error.add_context(none_may ? "leave these flags out, or the keys"
                                 : fmt::format("leave these flags out, or write \"auto\" in the file{}{}",
                                               without_auto_.empty() ? "" : ", but not for ",
                                               fmt::join(without_auto_, ", ")));
    }
    throw;
  }
  return settings_;
}

// The file's values, and defaults for what it leaves out. Some sections have defaults only if they are there.
void DsResolver::start() {
  for (const KeyRule& rule : ds_schema().rules) {
    const std::string key(rule.path);
    if (rule.type == ValueType::kSection || key.starts_with("scheduler.")) continue;
    const std::optional<Json> value = file_value(key);
    if (value && key == "comet.api_key") {
      set(key, "(not shown)", "file, no effect");  // rows are logged and saved
    } else if (value) {
      const bool idle = rule.status != KeyStatus::kHonoured && *value != rule.default_value();
      set(key, *value, idle ? no_effect("file", rule) : "file");
    } else if (file_.autos.contains(key)) {
      set(key, rule.default_value(), rule.status == KeyStatus::kHonoured ? "auto <- default" : no_effect("auto", rule));
    } else if (rule.status == KeyStatus::kHonoured && !is_of_optional_section(key)) {
      set(key, rule.default_value(), "default");
    }
  }
}

void DsResolver::link(const std::string& key, const Flag& flag, Missing missing) {
  const std::optional<Json> value = file_value(key);
  if (value) {
    if (given(flag.name) && *value != flag.value) mismatch(key, *value, flag.name, flag.value);
  } else if (file_.is_auto(key)) {
    set(key, flag.value, fmt::format("auto <- --{}", flag.name));
  } else if (given(flag.name) || missing == Missing::kFlag) {
    set(key, flag.value, fmt::format("--{}{}", flag.name, given(flag.name) ? "" : ", default"));
  } else {
    set(key, ds_schema().find(key)->default_value(), "default");
  }
}

void DsResolver::resolve_batch() {
  const training::TrainingOptions& options = inputs_.options;
  const std::string micro_key = "train_micro_batch_size_per_gpu";
  const std::string accumulation_key = "gradient_accumulation_steps";
  link(micro_key, {"per_device_train_batch_size", options.per_device_train_batch_size}, Missing::kFlag);
  link(accumulation_key, {"gradient_accumulation_steps", options.gradient_accumulation_steps}, Missing::kFlag);
  if (options.max_tokens_per_batch > 0) return resolve_batch_of_tokens();

  const std::optional<int64_t> total = file_integer("train_batch_size");
  const bool micro_named = file_.has(micro_key) || given("per_device_train_batch_size");
  const bool accumulation_known = file_integer(accumulation_key) || given("gradient_accumulation_steps");
  // "auto" is the flag's default where nothing else tells how train_batch_size is cut.
  const bool micro_is_number = file_integer(micro_key) || given("per_device_train_batch_size");
  const bool micro_known = micro_is_number || (micro_named && !accumulation_known);
  if (file_integer(accumulation_key) && !file_.has("train_batch_size") && !micro_named)
    problem(fmt::format("{} alone does not say how large a batch is: write \"{}\": \"auto\" or a number too",
                        accumulation_key, micro_key));
  std::optional<int64_t> micro = settings_[micro_key].value.get<int64_t>();
  std::optional<int64_t> accumulation = settings_[accumulation_key].value.get<int64_t>();
  if (*micro <= 0 || *accumulation <= 0)
    return problem(
        fmt::format("batch sizes must be positive: {}={}, {}={}", micro_key, *micro, accumulation_key, *accumulation));
  if (!total) {
    const double batch =
        static_cast<double>(*micro) * static_cast<double>(*accumulation) * static_cast<double>(inputs_.world_size);
    constexpr double kLargestBatch = 1e15;
    if (batch > kLargestBatch) return problem(fmt::format("a train_batch_size of {:.0f} is out of range", batch));
    set("train_batch_size", *micro * *accumulation * inputs_.world_size,
        fmt::format("{} * {} * {} ranks", *micro, *accumulation, inputs_.world_size));
    return;
  }
  if (!micro_known) micro.reset();
  if (!accumulation_known) accumulation.reset();
  // Both unknown: the file's "auto" is the flag, a missing key means one micro-batch per step.
  if (!micro && !accumulation)
    accumulation = file_.is_auto(accumulation_key) ? options.gradient_accumulation_steps : int64_t{1};
  derive_batch(*total, micro, accumulation);
}

// A micro-batch then has as many sequences as fit.
void DsResolver::resolve_batch_of_tokens() {
  for (const std::string key : {"train_batch_size", "train_micro_batch_size_per_gpu"}) {
    const std::optional<int64_t> sequences = file_integer(key);
    if (sequences) {
      problem(
          fmt::format("{}={} contradicts --max_tokens_per_batch {}, which decides how many sequences a batch has; "
                      "write \"auto\" or leave it out",
                      key, *sequences, inputs_.options.max_tokens_per_batch));
    }
    set(key, inputs_.options.per_device_train_batch_size, "no effect: --max_tokens_per_batch");
  }
}

// At least one of the two is known. Divides only, so nothing can overflow.
void DsResolver::derive_batch(int64_t total, std::optional<int64_t> micro, std::optional<int64_t> accumulation) {
  const int64_t world = inputs_.world_size;
  const auto divide = [&](const char* key, int64_t known, const char* known_key) -> int64_t {
    if (total / world % known == 0 && total % world == 0) {
      set(key, total / world / known,
          fmt::format("train_batch_size {} / {} {} / {} ranks", total, known_key, known, world));
      return total / world / known;
    }
    problem(fmt::format("train_batch_size={} is not a multiple of {}={} * {} ranks", total, known_key, known, world));
    return 0;
  };
  if (!accumulation) {
    divide("gradient_accumulation_steps", *micro, "train_micro_batch_size_per_gpu");
  } else if (!micro) {
    const int64_t derived = divide("train_micro_batch_size_per_gpu", *accumulation, "gradient_accumulation_steps");
    if (derived > 0) set("gradient_accumulation_steps", *accumulation, settings_["gradient_accumulation_steps"].origin);
  } else if (total % world != 0 || *micro > total || total / world % *micro != 0 ||
             total / world / *micro != *accumulation) {
    problem(
        fmt::format("train_batch_size={} is not train_micro_batch_size_per_gpu={} * gradient_accumulation_steps={} "
                    "* {} ranks = {:.0f}",
                    total, *micro, *accumulation, world,
                    static_cast<double>(*micro) * static_cast<double>(*accumulation) * static_cast<double>(world)));
  }
}

void DsResolver::resolve_optimizer() {
  if (!file_.has("optimizer.type")) {
    if (any_below("optimizer.params.")) problem("optimizer.params is without optimizer.type");
    return;
  }
  const auto type = file_.values.at("optimizer.type").get<std::string>();
  refuse_parameters_of_others(type);
  for (const DsOptimizerParameter& parameter : ds_optimizer_parameters()) {
    if (parameter.type == type) {
      resolve_optimizer_parameter(std::string(parameter.name), Json::parse(parameter.fallback));
    }
  }
  const bool coupled = type == "Adam" && file_value("optimizer.params.adam_w_mode").value_or(true) == false;
  const bool is_adam = type == "Adam" || type == "AdamW";
  const bool torch_adam = is_adam && file_value("optimizer.params.torch_adam").value_or(false) == true;
  DsSetting& decay = settings_["optimizer.params.weight_decay"];
  if (torch_adam && !coupled && decay.origin == "default") decay = {0.01, "default of torch.optim.AdamW"};
}

void DsResolver::resolve_optimizer_parameter(const std::string& name, const Json& fallback) {
  const training::TrainingOptions& options = inputs_.options;
  const std::string key = "optimizer.params." + name;
  if (name == "betas") return resolve_betas(fallback);
  if (name == "lr") {
    link(key, {"learning_rate", options.learning_rate}, Missing::kDefault);
  } else if (name == "eps") {
    link(key, {"adam_epsilon", options.adam_epsilon}, Missing::kDefault);
  } else if (name == "weight_decay") {
    link(key, {"weight_decay", options.weight_decay}, Missing::kDefault);
  } else if (!file_value(key)) {
    set(key, fallback, "default");
  }
  if (settings_[key].origin == "default") settings_[key].value = fallback;  // others have another one
}

// What has no effect on any optimizer's result may be there for all.
void DsResolver::refuse_parameters_of_others(const std::string& type) {
  std::vector<std::string> own;
  std::set<std::string> all;
  for (const DsOptimizerParameter& parameter : ds_optimizer_parameters()) {
    all.emplace(parameter.name);
    if (parameter.type == type) own.emplace_back(parameter.name);
  }
  for (const std::string& name : all) {
    const bool is_own = std::ranges::find(own, name) != own.end();
    if (is_own || !file_.has("optimizer.params." + name)) continue;
    problem(fmt::format("optimizer.params.{}: {} has no such parameter{}; it has: {}", name, type,
                        did_you_mean(name, own), fmt::join(own, ", ")));
  }
}

// Two flags for one key: each is compared, or used, on its own.
void DsResolver::resolve_betas(const Json& fallback) {
  const std::string key = "optimizer.params.betas";
  const std::optional<Json> value = file_value(key);
  const training::TrainingOptions& options = inputs_.options;
  const Json flags = {options.adam_beta1, options.adam_beta2};
  Json betas = value ? *value : file_.is_auto(key) ? flags : fallback;
  const Json before = betas;
  if (given("adam_beta1")) betas[0] = options.adam_beta1;
  if (given("adam_beta2")) betas[1] = options.adam_beta2;
  if (value && betas != *value) return mismatch(key, *value, "adam_beta1, --adam_beta2", betas);
  if (value) return;
  set(key, betas,
      file_.is_auto(key) ? "auto <- --adam_beta1, --adam_beta2"
      : betas == before  ? "default"
                         : "--adam_beta1, --adam_beta2");
}

std::optional<Json> DsResolver::file_value(const std::string& key) const {
  const auto found = file_.values.find(key);
  if (found == file_.values.end() || found->second == "auto") return std::nullopt;
  return found->second;
}

std::optional<int64_t> DsResolver::file_integer(const std::string& key) const {
  const std::optional<Json> value = file_value(key);
  if (!value) return std::nullopt;
  return value->get<int64_t>();
}

bool DsResolver::any_below(const std::string& prefix) const {
  const auto found = file_.values.lower_bound(prefix);
  return found != file_.values.end() && found->first.starts_with(prefix);
}

void DsResolver::mismatch(const std::string& key, const Json& value, const std::string& flag, const Json& flag_value) {
  const KeyRule* const rule = ds_schema().find(key);
  if (rule == nullptr || rule->auto_meaning != AutoMeaning::kFromFlags) without_auto_.push_back(key);
  mismatches_.push_back(fmt::format("ds {}={} vs --{}={}", key, value.dump(), flag, flag_value.dump()));
}

}  // namespace strake::integrations
