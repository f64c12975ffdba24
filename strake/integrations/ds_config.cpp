#include "strake/integrations/ds_config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "strake/core/nearest_name.h"
#include "strake/integrations/config_source.h"
#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations {
namespace {

struct OptimizerName {
  std::string_view name;
  std::string_view why_not;  // empty: it is there
};

constexpr std::string_view kNotThere = "it is not there; AdamW, Adagrad, Lamb, Lion and SGD are";
constexpr std::string_view kOneBitOptimizer = "its compressed communication is not there; AdamW is";
constexpr std::string_view kMup = "mup's parametrization is not there; AdamW is";

// DeepSpeed's own, then those it takes from torch.optim.
constexpr std::array kOptimizers{
    OptimizerName{"AdamW", ""},
    OptimizerName{"Adam", ""},
    OptimizerName{"Adagrad", ""},
    OptimizerName{"Lamb", ""},
    OptimizerName{"Lion", ""},
    OptimizerName{"Muon", kNotThere},
    OptimizerName{"OneBitAdam", kOneBitOptimizer},
    OptimizerName{"OneBitLamb", kOneBitOptimizer},
    OptimizerName{"ZeroOneAdam", kOneBitOptimizer},
    OptimizerName{"MuAdam", kMup},
    OptimizerName{"MuAdamW", kMup},
    OptimizerName{"MuSGD", kMup},
    OptimizerName{"SGD", ""},
    OptimizerName{"Adadelta", kNotThere},
    OptimizerName{"Adamax", kNotThere},
    OptimizerName{"ASGD", kNotThere},
    OptimizerName{"LBFGS", kNotThere},
    OptimizerName{"NAdam", kNotThere},
    OptimizerName{"RAdam", kNotThere},
    OptimizerName{"RMSprop", kNotThere},
    OptimizerName{"Rprop", kNotThere},
    OptimizerName{"SparseAdam", kNotThere},
    OptimizerName{"Adafactor", kNotThere},
};

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Sets the type in its usual spelling; a problem if it is not there.
std::optional<std::string> check_optimizer(CheckedValues& values) {
  const auto found = values.values.find("optimizer.type");
  if (found == values.values.end()) return std::nullopt;
  const auto type = found->second.get<std::string>();
  std::vector<std::string> names;
  for (const auto& [name, why_not] : kOptimizers) {
    names.emplace_back(name);
    if (!same_name(name, type)) continue;
    found->second = std::string(name);
    if (why_not.empty()) return std::nullopt;
    return fmt::format("key 'optimizer.type': {}: {}", name, why_not);
  }
  return fmt::format("key 'optimizer.type': no optimizer is called '{}'{}", printable(type), did_you_mean(type, names));
}

// "zero_optimization": true, the form of before 2020, with its one other key.
void translate_legacy_zero(Json& root, std::vector<std::string>& notices) {
  const auto zero = root.find("zero_optimization");
  if (zero == root.end() || !zero->is_boolean()) return;
  const bool on = zero->get<bool>();
  *zero = {{"stage", on ? 1 : 0}};
  const auto size = root.find("allgather_size");
  if (size != root.end() && on) (*zero)["allgather_bucket_size"] = *size;
  if (size != root.end()) root.erase("allgather_size");
  notices.push_back(fmt::format("zero_optimization: {} is deprecated; taken as {{\"stage\": {}}}", on, on ? 1 : 0));
}

// cpu_offload and cpu_offload_param; a problem if the section they stand for is there too.
std::optional<std::string> translate_cpu_offload(CheckedValues& values, const std::string& old_key,
                                                 const std::string& section) {
  const auto found = values.values.find(old_key);
  if (found == values.values.end()) return std::nullopt;
  const bool on = found->second.get<bool>();
  values.values.erase(found);
  const auto after = values.values.lower_bound(section + ".");
  if (after != values.values.end() && after->first.starts_with(section + "."))
    return fmt::format("key '{}': deprecated name of '{}', which is also there", old_key, section);
  values.notices.push_back(fmt::format("{}: deprecated; the key is {}.device", old_key, section));
  if (on) values.values[section + ".device"] = "cpu";
  return std::nullopt;
}

}  // namespace

CheckedValues parse_ds_config(const std::string& argument) {
  ConfigSource source = read_config_source(argument, "--deepspeed");
  std::vector<std::string> notices;
  translate_legacy_zero(source.root, notices);
  CheckedValues values = check_values(source.root, ds_schema(), source.name);
  values.notices.insert(values.notices.begin(), notices.begin(), notices.end());
  std::vector<std::string> problems;
  const auto collect = [&](std::optional<std::string> problem) {
    if (problem) problems.push_back(std::move(*problem));
  };
  collect(check_optimizer(values));
  collect(translate_cpu_offload(values, "zero_optimization.cpu_offload", "zero_optimization.offload_optimizer"));
  collect(translate_cpu_offload(values, "zero_optimization.cpu_offload_param", "zero_optimization.offload_param"));
  require_no_problems(problems, values.source);
  return values;
}

}  // namespace strake::integrations
