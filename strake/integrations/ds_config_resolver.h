#pragma once

#include <optional>
#include <string>
#include <vector>

#include "strake/integrations/ds_config_resolve.h"
#include "strake/integrations/ds_config_settings.h"
#include "strake/optim/optimizer.h"

namespace strake::integrations {

// One run of resolve(): collects the settings, and all that is wrong with them.
class DsResolver {
 public:
  DsResolver(const CheckedValues& file, const ResolveInputs& inputs) : file_(file), inputs_(inputs) {}

  DsSettings run();
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  // What decides a key that the file leaves out and whose flag was not given.
  enum class Missing { kFlag, kDefault };

  struct Flag {
    const char* name;
    Json value;
  };

  void start();
  void resolve_batch();
  void resolve_batch_of_tokens();
  void derive_batch(int64_t total, std::optional<int64_t> micro, std::optional<int64_t> accumulation);
  void resolve_optimizer();
  void resolve_optimizer_parameter(const std::string& name, const Json& fallback);
  void refuse_parameters_of_others(const std::string& type);
  void resolve_betas(const Json& fallback);
  void resolve_scheduler();
  void resolve_schedule_parameter(const std::string& name, const Json& fallback);
  bool gives_warmup() const;
  // Steps of --warmup_steps or --warmup_ratio; none while they wait for the number of all steps.
  std::optional<int64_t> flag_warmup() const;
  void check_schedule(const std::string& type);
  // Of an optimizer without betas there is no momentum to cycle: as in DeepSpeed it is left alone then.
  void resolve_cycle_of_momentum();
  optim::OptimizerSettings optimizer_settings() const;
  void resolve_zero();
  void resolve_monitors();
  void check_precision();
  // Master weights of 16 bits: "bf16" or "fp16".
  void check_masters(const std::string& type);
  void check_zero();
  void check_offload(const std::string& section, int64_t lowest_stage);

  // Lets flag and file agree on a key, by the rules in ds_config_resolve.h.
  void link(const std::string& key, const Flag& flag, Missing missing);

  bool given(const std::string& flag) const { return inputs_.given_flags.contains(flag); }
  // The file's own value: neither missing nor "auto".
  std::optional<Json> file_value(const std::string& key) const;
  std::optional<int64_t> file_integer(const std::string& key) const;
  bool any_below(const std::string& prefix) const;
  void set(const std::string& key, Json value, std::string origin) {
    settings_[key] = {std::move(value), std::move(origin)};
  }
  void mismatch(const std::string& key, const Json& value, const std::string& flag, const Json& flag_value);
  void problem(std::string text) { problems_.push_back(std::move(text)); }

  const CheckedValues& file_;
  const ResolveInputs& inputs_;
  DsSettings settings_;
  std::vector<std::string> mismatches_;
  std::vector<std::string> without_auto_;  // keys of these that cannot be "auto"
  std::vector<std::string> problems_;
  std::vector<std::string> notices_;
};

}  // namespace strake::integrations
