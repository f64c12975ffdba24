#include <algorithm>

#include "strake/integrations/ds_config_keys.h"
#include "strake/integrations/ds_config_resolver.h"
#include "strake/optim/learning_rate.h"

// The parts of DsResolver that concern the learning rate schedule, ZeRO and checkpoints.
namespace strake::integrations {
namespace {

constexpr std::string_view kUnknownSteps = "waits for the number of steps";

}  // namespace

void DsResolver::resolve_scheduler() {
  const std::optional<Json> type = file_value("scheduler.type");
  if (!type) {
    if (any_below("scheduler.params.")) problem("scheduler.params is without scheduler.type");
    return;
  }
  set("scheduler.type", *type, "file");
  if (given("lr_scheduler_type") && Json(inputs_.options.lr_scheduler_type) != *type)
    mismatch("scheduler.type", *type, "lr_scheduler_type", inputs_.options.lr_scheduler_type);
  for (const auto& [owner, name, fallback] : ds_schedule_parameters()) {
    if (owner != type->get<std::string>()) continue;
    if (fallback == "required" && !file_.has(fmt::format("scheduler.params.{}", name)))
      problem(fmt::format("{} needs scheduler.params.{}", owner, name));
    resolve_schedule_parameter(std::string(name), fallback == "required" ? Json() : Json::parse(fallback));
  }
  resolve_cycle_of_momentum();
  check_schedule(type->get<std::string>());
}

void DsResolver::resolve_schedule_parameter(const std::string& name, const Json& fallback) {
  const std::string key = "scheduler.params." + name;
  const training::TrainingOptions& options = inputs_.options;
  const auto optimizer_lr = settings_.find("optimizer.params.lr");
  const Json learning_rate = optimizer_lr != settings_.end() ? optimizer_lr->second.value : Json(options.learning_rate);
  const std::optional<Json> value = file_value(key);
  if (value) {
    set(key, *value, "file");
    const auto compare = [&](const char* flag, const Json& flag_value) {
      if (given(flag) && *value != flag_value) mismatch(key, *value, flag, flag_value);
    };
    if (name == "warmup_max_lr") compare("learning_rate", options.learning_rate);
    const std::optional<int64_t> warmup = flag_warmup();
    if (name == "warmup_num_steps" && gives_warmup() && warmup && *value != *warmup) {
      given("warmup_steps") ? mismatch(key, *value, "warmup_steps", options.warmup_steps)
                            : mismatch(key, *value, "warmup_ratio", options.warmup_ratio);
    }
    if (name == "total_num_steps" && options.max_steps > 0) {
      compare("max_steps", options.max_steps);
    } else if (name == "total_num_steps" && inputs_.total_steps && *value != *inputs_.total_steps) {
      mismatches_.push_back(fmt::format("ds {}={} vs the run's {} steps", key, value->dump(), *inputs_.total_steps));
    }
  } else if (name == "warmup_max_lr" && !file_.is_auto(key) && given("learning_rate")) {
    set(key, options.learning_rate, "--learning_rate");
  } else if (!file_.is_auto(key) && !(name == "warmup_num_steps" && gives_warmup())) {
    const bool from_optimizer = name == "warmup_max_lr" && fallback.is_null();
    set(key, from_optimizer ? learning_rate : fallback, from_optimizer ? "default: the optimizer's lr" : "default");
  } else if (name == "warmup_min_lr") {
    set(key, 0.0, "auto <- 0");
  } else if (name == "warmup_max_lr") {
    const std::optional<Json> of_file = file_value("optimizer.params.lr");
    set(key, of_file ? *of_file : Json(options.learning_rate),
        of_file ? "auto <- the optimizer's lr" : "auto <- --learning_rate");
  } else if (name == "total_num_steps") {
    set(key, inputs_.total_steps ? Json(*inputs_.total_steps) : Json(),
        inputs_.total_steps ? "auto <- number of steps" : fmt::format("auto, {}", kUnknownSteps));
  } else {
    const std::optional<int64_t> warmup = flag_warmup();
    const std::string origin =
        file_.is_auto(key) ? "auto <- --warmup_steps, --warmup_ratio" : "--warmup_steps, --warmup_ratio";
    set(key, warmup ? Json(*warmup) : Json(), warmup ? origin : fmt::format("{}: {}", origin, kUnknownSteps));
  }
}

bool DsResolver::gives_warmup() const { return given("warmup_steps") || given("warmup_ratio"); }

std::optional<int64_t> DsResolver::flag_warmup() const {
  const training::TrainingOptions& options = inputs_.options;
  const bool is_share = options.warmup_steps < 1 && options.warmup_steps + options.warmup_ratio > 0;
  if (is_share && !inputs_.total_steps) return std::nullopt;
  // At least 1, as Transformers fills it in: DeepSpeed refuses 0.
  return std::max<int64_t>(1,
                           optim::resolve_warmup_steps({.steps = options.warmup_steps, .ratio = options.warmup_ratio},
                                                       inputs_.total_steps.value_or(0)));
}

optim::OptimizerSettings DsResolver::optimizer_settings() const {
  const auto type = settings_.find("optimizer.type");
  if (type == settings_.end()) return inputs_.options.optimizer_settings();
  return optim::optimizer_settings_of_deepspeed(type->second.value.get<std::string>(), Json::object());
}

void DsResolver::resolve_cycle_of_momentum() {
  const std::string key = "scheduler.params.cycle_momentum";
  const auto cycles = settings_.find(key);
  if (cycles == settings_.end() || cycles->second.value != true) return;
  if (optim::Optimizer(optimizer_settings()).has_betas()) return;
  set(key, false, "the optimizer has no betas");
  notices_.push_back(fmt::format("{}: the optimizer has no betas to cycle; as in DeepSpeed its momentum stays", key));
}

void DsResolver::check_schedule(const std::string& type) {
  for (const KeyRule& rule : ds_schema().rules) {
    const std::string key(rule.path);
    if (!key.starts_with("scheduler.params.") || !file_.has(key) || settings_.contains(key)) continue;
    problem(fmt::format("{} is not a parameter of {}", key, type));
  }
  const auto ordered = [&](const std::string& low, const std::string& high) {
    const auto first = settings_.find("scheduler.params." + low);
    const auto second = settings_.find("scheduler.params." + high);
    return first == settings_.end() || second == settings_.end() || first->second.value.is_null() ||
           second->second.value.is_null() || first->second.value.get<double>() <= second->second.value.get<double>();
  };
  for (const auto& [low, high] :
       {std::pair{"warmup_min_lr", "warmup_max_lr"}, std::pair{"cycle_min_lr", "cycle_max_lr"},
        std::pair{"cycle_min_mom", "cycle_max_mom"}}) {
    if (!ordered(low, high)) problem(fmt::format("scheduler.params: {} is above {}", low, high));
  }
  if (!ordered("warmup_num_steps", "total_num_steps"))
    notices_.push_back("scheduler.params: the run ends before its warm-up: warmup_num_steps is above total_num_steps");
  const auto warmup = settings_.find("scheduler.params.warmup_num_steps");
  constexpr int64_t kFewest = 2;
  if (warmup == settings_.end() || warmup->second.value.is_null()) return;
  const auto steps = warmup->second.value.get<int64_t>();
  if (steps >= kFewest) return;
  notices_.push_back(
      fmt::format("scheduler.params.warmup_num_steps {}: the warm-up takes {}, DeepSpeed's fewest", steps, kFewest));
}

void DsResolver::resolve_zero() {
  const int64_t stage = settings_["zero_optimization.stage"].value.get<int64_t>();
  for (const auto& [name, share] : {std::pair{"reduce_bucket_size", 1.0}, {"stage3_prefetch_bucket_size", 0.9}}) {
    const std::string bucket = fmt::format("zero_optimization.{}", name);
    if (!file_.autos.contains(bucket) || !inputs_.hidden_size) continue;  // as Transformers fills it in
    const auto hidden = static_cast<double>(*inputs_.hidden_size);
    settings_[bucket].value = static_cast<int64_t>(share * hidden * hidden);
  }
  const std::string key = "zero_optimization.stage3_param_persistence_threshold";
  if (!file_.is_auto(key)) return;
  if (stage != 3) return set(key, ds_schema().find(key)->default_value(), "default");
  if (!inputs_.hidden_size)
    return problem(
        fmt::format("{}=\"auto\" follows from hidden_size, which this model does not have; write a number", key));
  set(key, 10 * *inputs_.hidden_size, fmt::format("auto <- 10 hidden, hidden_size {}", *inputs_.hidden_size));
}

void DsResolver::resolve_monitors() {
  for (const std::string section : {"tensorboard.", "csv_monitor.", "flops_profiler.", "comms_logger."}) {
    if (file_value(section + "enabled").value_or(false) != true) continue;
    for (const KeyRule& rule : ds_schema().rules) {
      const std::string key(rule.path);
      const bool is_left_out = rule.path.starts_with(section) && !settings_.contains(key);
      if (is_left_out && rule.status == KeyStatus::kHonoured) set(key, rule.default_value(), "default");
    }
  }
  if (file_value("nebula.enabled").value_or(false) == true) {
    notices_.push_back(
        "nebula.enabled: checkpoints are written to --output_dir while training goes on, as by --async_save, when "
        "--save_strategy says; persistent_storage_path and persistent_time_interval have no effect");
  }
}

void DsResolver::check_precision() {
  if (settings_["fp16.enabled"].value == true && settings_["bf16.enabled"].value == true)
    problem(fmt::format("fp16 ({}) and bf16 ({}) cannot both be on", settings_["fp16.enabled"].origin,
                        settings_["bf16.enabled"].origin));
  check_masters("bf16");
  check_masters("fp16");
  const bool masters = settings_["bf16.bf16_master_weights_and_grads"].value == true;
  const bool states = settings_["bf16.bf16_optimizer_states"].value == true;
  if (states && !masters) problem("bf16.bf16_optimizer_states needs bf16.bf16_master_weights_and_grads");
  if (masters && !states)
    problem(
        "bf16.bf16_master_weights_and_grads needs bf16.bf16_optimizer_states: bf16 weights with fp32 state are not "
        "there");
}

void DsResolver::check_masters(const std::string& type) {
  const std::string key = fmt::format("{0}.{0}_master_weights_and_grads", type);
  if (settings_[key].value == false) return;
  const DsSetting& enabled = settings_[type + ".enabled"];
  if (enabled.value == false) problem(fmt::format("{} needs {}.enabled, which is off ({})", key, type, enabled.origin));
  const Json sum = settings_["data_types.grad_accum_dtype"].value;
  if (!sum.is_null() && sum != type)
    problem(fmt::format("data_types.grad_accum_dtype={} contradicts {}, which adds gradients up in {}",
                        sum.get<std::string>(), key, type));
}

void DsResolver::check_zero() {
  check_offload("offload_param", training::OffloadOptions::kLowestStageOfParameters);
  check_offload("offload_optimizer", training::OffloadOptions::kLowestStage);
  const auto integer = [&](const std::string& name) {
    return settings_["zero_optimization." + name].value.get<int64_t>();
  };
  const int64_t stage = integer("stage");
  if (integer("mics_shard_size") > 0 && integer("zero_hpz_partition_size") > 1)
    problem(fmt::format(
        "zero_optimization.mics_shard_size={} and zero_optimization.zero_hpz_partition_size={} contradict each other: "
        "both say how many ranks share the parameters",
        integer("mics_shard_size"), integer("zero_hpz_partition_size")));
  const double ratio = settings_["zero_optimization.offload_optimizer.ratio"].value.get<double>();
  if (ratio < 1 && stage != 3)
    problem(fmt::format("zero_optimization.offload_optimizer.ratio={} needs stage 3, not {}", ratio, stage));
  for (const std::string name : {"zero_hpz_partition_size", "mics_shard_size"}) {
    const int64_t ranks = integer(name);
    if (ranks <= 1 && (name != "mics_shard_size" || ranks != 1)) continue;
    if (stage != 3) problem(fmt::format("zero_optimization.{}={} needs stage 3, not {}", name, ranks, stage));
    if (inputs_.world_size % ranks != 0)
      problem(fmt::format("zero_optimization.{}={} does not divide {} ranks", name, ranks, inputs_.world_size));
  }
}

void DsResolver::check_offload(const std::string& section, int64_t lowest_stage) {
  const std::string path = "zero_optimization." + section;
  const std::string device = settings_[path + ".device"].value.get<std::string>();
  if (device == "none") return;
  const int64_t stage = settings_["zero_optimization.stage"].value.get<int64_t>();
  if (stage < lowest_stage)
    problem(fmt::format("{}.device={} needs stage {}{}, not {}", path, device, lowest_stage,
                        lowest_stage < 3 ? " or above" : "", stage));
  if (device == "nvme" && settings_[path + ".nvme_path"].value.is_null())
    problem(fmt::format("{}.device=nvme needs {}.nvme_path, a folder on the disk to use", path, path));
}

}  // namespace strake::integrations
