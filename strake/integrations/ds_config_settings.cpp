#include "strake/integrations/ds_config_settings.h"

#include <algorithm>
#include <filesystem>

#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations {
namespace {

DsDevice device(const std::string& name) {
  return name == "cpu" ? DsDevice::kCpu : name == "nvme" ? DsDevice::kNvme : DsDevice::kNone;
}

Precision dtype(const std::string& name) {
  return name == "fp16" ? Precision::kFp16 : name == "bf16" ? Precision::kBf16 : Precision::kFp32;
}

// The values below one section.
class Section {
 public:
  Section(const DsSettings& settings, std::string prefix) : settings_(settings), prefix_(std::move(prefix)) {}

  const Json& value(const std::string& key) const { return settings_.at(prefix_ + key).value; }
  int64_t integer(const std::string& key) const { return value(key).get<int64_t>(); }
  double number(const std::string& key) const { return value(key).get<double>(); }
  bool flag(const std::string& key) const { return value(key).get<bool>(); }
  std::string text(const std::string& key) const { return value(key).is_null() ? "" : value(key).get<std::string>(); }
  std::optional<Precision> optional_dtype(const std::string& key) const {
    if (value(key).is_null()) return std::nullopt;
    return dtype(text(key));
  }

 private:
  const DsSettings& settings_;
  std::string prefix_;
};

// What the optimizer takes, and no more.
Json optimizer_params(const DsSettings& settings, const std::string& type) {
  const Section params(settings, "optimizer.params.");
  Json result = Json::object();
  for (const DsOptimizerParameter& parameter : ds_optimizer_parameters()) {
    const std::string name(parameter.name);
    if (parameter.type == type) result[name] = params.value(name);
  }
  return result;
}

DsOptimizer typed_optimizer(const DsSettings& settings) {
  const Section params(settings, "optimizer.params.");
  const std::string type = Section(settings, "optimizer.").text("type");
  return {.type = type,
          .settings = optim::optimizer_settings_of_deepspeed(type, optimizer_params(settings, type)),
          .learning_rate = params.number("lr"),
          .weight_decay = params.number("weight_decay")};
}

DsScheduler typed_scheduler(const DsSettings& settings) {
  DsScheduler scheduler{.type = Section(settings, "scheduler.").text("type"), .params = Json::object()};
  const std::string prefix = "scheduler.params.";
  for (const auto& [key, setting] : settings)
    if (key.starts_with(prefix)) scheduler.params[key.substr(prefix.size())] = setting.value;
  return scheduler;
}

optim::LossScaling typed_loss_scaling(const DsSettings& settings) {
  const Section fp16(settings, "fp16.");
  return {.loss_scale = fp16.number("loss_scale"),
          .initial_scale_power = fp16.integer("initial_scale_power"),
          .loss_scale_window = fp16.integer("loss_scale_window"),
          .hysteresis = fp16.integer("hysteresis"),
          .consecutive_hysteresis = fp16.flag("consecutive_hysteresis"),
          .min_loss_scale = fp16.number("min_loss_scale")};
}

DsOffloadParam typed_offload_param(const DsSettings& settings) {
  const Section offload(settings, "zero_optimization.offload_param.");
  return {.device = device(offload.text("device")),
          .nvme_path = offload.text("nvme_path"),
          .pin_memory = offload.flag("pin_memory")};
}

DsOffloadOptimizer typed_offload_optimizer(const DsSettings& settings) {
  const Section offload(settings, "zero_optimization.offload_optimizer.");
  return {.device = device(offload.text("device")),
          .nvme_path = offload.text("nvme_path"),
          .buffer_count = offload.integer("buffer_count"),
          .pin_memory = offload.flag("pin_memory"),
          .ratio = offload.number("ratio")};
}

DsZero typed_zero(const DsSettings& settings) {
  const Section zero(settings, "zero_optimization.");
  const int64_t mics = zero.integer("mics_shard_size");
  return {.stage = zero.integer("stage"),
          .sub_group_size = zero.integer("sub_group_size"),
          .param_persistence_threshold = zero.integer("stage3_param_persistence_threshold"),
          .model_persistence_threshold = zero.integer("stage3_model_persistence_threshold"),
          .hpz_partition_size = std::max<int64_t>(1, zero.integer("zero_hpz_partition_size")),
          .mics_shard_size = mics > 0 ? mics : -1,
          .offload_param = typed_offload_param(settings),
          .offload_optimizer = typed_offload_optimizer(settings)};
}

DsAio typed_aio(const DsSettings& settings) {
  const Section aio(settings, "aio.");
  return {.block_size = aio.integer("block_size"), .queue_depth = aio.integer("queue_depth")};
}

bool is_enabled(const DsSettings& settings, const std::string& section) {
  const auto enabled = settings.find(section + "enabled");
  return enabled != settings.end() && enabled->second.value == true;
}

std::optional<DsFlopsProfiler> typed_flops_profiler(const DsSettings& settings) {
  if (!is_enabled(settings, "flops_profiler.")) return std::nullopt;
  const Section profiler(settings, "flops_profiler.");
  return DsFlopsProfiler{.profile_step = profiler.integer("profile_step"),
                         .top_modules = profiler.integer("top_modules"),
                         .detailed = profiler.flag("detailed"),
                         .output_file = profiler.text("output_file")};
}

std::optional<DsCommsLogger> typed_comms_logger(const DsSettings& settings) {
  if (!is_enabled(settings, "comms_logger.")) return std::nullopt;
  const Section logger(settings, "comms_logger.");
  return DsCommsLogger{.verbose = logger.flag("verbose"),
                       .all = logger.flag("prof_all"),
                       .operations = logger.value("prof_ops").get<std::vector<std::string>>()};
}

std::optional<std::string> monitor_folder(const DsSettings& settings, const std::string& section) {
  if (!is_enabled(settings, section)) return std::nullopt;
  const Section monitor(settings, section);
  return std::filesystem::path(monitor.text("output_path")) / monitor.text("job_name");
}

}  // namespace

DsConfig typed_config(const DsSettings& settings) {
  const Section root(settings, "");
  DsConfig config{.train_batch_size = root.integer("train_batch_size"),
                  .train_micro_batch_size_per_gpu = root.integer("train_micro_batch_size_per_gpu"),
                  .gradient_accumulation_steps = root.integer("gradient_accumulation_steps"),
                  .dataloader_drop_last = root.flag("dataloader_drop_last"),
                  .gradient_clipping = root.number("gradient_clipping"),
                  .compute_dtype = root.flag("bf16.enabled")   ? Precision::kBf16
                                   : root.flag("fp16.enabled") ? Precision::kFp16
                                                               : Precision::kFp32,
                  .loss_scaling = typed_loss_scaling(settings),
                  .master_dtype = root.flag("bf16.bf16_master_weights_and_grads")   ? Precision::kBf16
                                  : root.flag("fp16.fp16_master_weights_and_grads") ? Precision::kFp16
                                                                                    : Precision::kFp32,
                  .grad_accum_dtype = root.optional_dtype("data_types.grad_accum_dtype"),
                  .param_dtype = root.optional_dtype("data_types.param_dtype"),
                  .communication_dtype = root.optional_dtype("communication_data_type"),
                  .zero = typed_zero(settings),
                  .aio = typed_aio(settings),
                  .cpu_checkpointing = root.flag("activation_checkpointing.cpu_checkpointing"),
                  .monitors = {.tensorboard = monitor_folder(settings, "tensorboard."),
                               .csv = monitor_folder(settings, "csv_monitor."),
                               .samples_per_step = root.integer("train_batch_size")},
                  .flops_profiler = typed_flops_profiler(settings),
                  .comms_logger = typed_comms_logger(settings),
                  .wall_clock_breakdown = root.flag("wall_clock_breakdown"),
                  .async_save = root.flag("checkpoint.writer.decoupled") || is_enabled(settings, "nebula.")};
  if (settings.contains("optimizer.type")) config.optimizer = typed_optimizer(settings);
  if (settings.contains("scheduler.type")) config.scheduler = typed_scheduler(settings);
  return config;
}

}  // namespace strake::integrations
