#include "strake/integrations/fsdp.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/integrations/config_schema.h"
#include "strake/integrations/config_source.h"

namespace strake::integrations {
namespace {

using enum ValueType;

struct Strategy {
  std::string_view name;
  int64_t stage;
  bool hybrid;
};

constexpr std::array kStrategies{
    Strategy{"full_shard", 3, false},  Strategy{"shard_grad_op", 2, false},     Strategy{"no_shard", 0, false},
    Strategy{"hybrid_shard", 3, true}, Strategy{"hybrid_shard_zero2", 2, true},
};

constexpr std::string_view kWrapping = "parameters are sharded block by block, whatever the classes are called";
constexpr std::string_view kSchedule = "the schedule knows when a block is needed and prefetches it";
constexpr std::string_view kNoXla = "there is no XLA; leave it out";
constexpr std::string_view kLoading = "each rank reads the weights one block at a time and keeps its part";

constexpr std::array kFsdpKeys{
    accepted("version", kIntegerText, "2", "both versions mean the same sharding").range(1, 2),
    honoured("reshard_after_forward", kBoolOrText, "null")
        .one_of("full_shard|shard_grad_op|no_shard|hybrid_shard|hybrid_shard_zero2|true|false"),
    honoured("cpu_offload", kBoolText, "false"),
    honoured("activation_checkpointing", kBoolText, "false"),
    noticed("state_dict_type", kText, "\"FULL_STATE_DICT\"",
            "a checkpoint has the model in one piece, and can be loaded at any number of ranks")
        .one_of("FULL_STATE_DICT|SHARDED_STATE_DICT"),
    accepted("cpu_ram_efficient_loading", kBoolText, "false", kLoading),
    accepted("sync_module_states", kBoolText, "true", kLoading),
    accepted("auto_wrap_policy", kText, "\"TRANSFORMER_BASED_WRAP\"", kWrapping)
        .one_of("TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP|NO_WRAP"),
    accepted("transformer_layer_cls_to_wrap", kTextList, "null", kWrapping),
    accepted("min_num_params", kInteger, "0", kWrapping).range(0),
    accepted("backward_prefetch", kText, "\"no_prefetch\"", kSchedule).one_of("backward_pre|backward_post|no_prefetch"),
    accepted("forward_prefetch", kBoolText, "false", kSchedule),
    accepted("limit_all_gathers", kBoolText, "true", "blocks are gathered only as they are needed"),
    accepted("use_orig_params", kBoolText, "true", "parameters always keep their names"),
    refused("xla", kBoolText, "false", kNoXla),
    refused("xla_fsdp_v2", kBoolText, "false", kNoXla),
    refused("xla_fsdp_grad_ckpt", kBoolText, "false", kNoXla),
    refused("xla_fsdp_settings", kObject, "null", kNoXla).allowing("{}"),
};

constexpr std::array kFsdpAliases{
    KeyAlias{"offload_params", "cpu_offload", ""},
    KeyAlias{"transformer_cls_names_to_wrap", "transformer_layer_cls_to_wrap", ""},
};

constexpr std::array kFsdpHints{
    KeyHint{"sharding_strategy", "give it to --fsdp, as in --fsdp full_shard"},
    KeyHint{"mixed_precision", "the flags are --bf16 and --fp16"},
    KeyHint{"wrap", "give auto_wrap to --fsdp"},
};

const Strategy* find_strategy(std::string_view name) {
  const auto found = std::ranges::find(kStrategies, name, &Strategy::name);
  return found == kStrategies.end() ? nullptr : &*found;
}

struct Words {
  const Strategy* strategy = nullptr;
  bool offload = false;
};

Words parse_words(const std::string& text) {
  Words words;
  std::vector<std::string> known{"offload", "auto_wrap"};
  for (const Strategy& strategy : kStrategies) known.emplace_back(strategy.name);
  std::istringstream stream(text);
  bool is_blank = true;
  for (std::string given; stream >> given;) {
    const std::string word = lower_case(given);  // torch writes its strategies in capitals
    const Strategy* strategy = find_strategy(word);
    if (strategy != nullptr) {
      require(words.strategy == nullptr || words.strategy == strategy, ErrorKind::kUsage,
              "--fsdp: {} and {} contradict each other", words.strategy == nullptr ? "" : words.strategy->name, word);
      words.strategy = strategy;
    } else if (word == "offload") {
      words.offload = true;
    } else {
      require(word == "auto_wrap" || word == "true", ErrorKind::kUsage,
              "--fsdp: unknown option '{}'{}; options are words with blanks between them: {}", printable(given),
              did_you_mean(word, known), fmt::join(known, ", "));
    }
    is_blank = false;
  }
  require(!is_blank || text.empty(), ErrorKind::kUsage, "--fsdp is blank; options are: {}", fmt::join(known, ", "));
  return words;
}

CheckedValues read_config(const std::string& argument) {
  const Schema schema{.rules = {kFsdpKeys.begin(), kFsdpKeys.end()},
                      .aliases = {kFsdpAliases.begin(), kFsdpAliases.end()},
                      .hints = {kFsdpHints.begin(), kFsdpHints.end()}};
  const ConfigSource source = read_config_source(argument, "--fsdp_config");
  require(!source.root.contains("fsdp_config"), ErrorKind::kConfig,
          "{}: a configuration of Accelerate, whose section fsdp_config is what --fsdp_config takes", source.name);
  Json plain = Json::object();
  for (const auto& [key, value] : source.root.items()) {
    const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
    require(!plain.contains(name), ErrorKind::kConfig, "{}: key '{}' is there with and without 'fsdp_' before it",
            source.name, printable(name));
    plain[name] = value;
  }
  return check_values(plain, schema, source.name);
}

// FSDP 2 knows true and false, FSDP 1 the names of strategies; null if the configuration has no say.
const Strategy* strategy_of(const CheckedValues& values) {
  const auto found = values.values.find("reshard_after_forward");
  if (found == values.values.end()) return nullptr;
  const Json& value = found->second;
  if (value == true || value == "true") return find_strategy("full_shard");
  if (value == false || value == "false") return find_strategy("shard_grad_op");
  return find_strategy(value.get<std::string>());
}

bool is_on(const CheckedValues& values, const std::string& key) {
  const auto found = values.values.find(key);
  return found != values.values.end() && found->second == true;
}

}  // namespace

FsdpOptions parse_fsdp(const std::string& words, const std::string& config) {
  const Words asked = parse_words(words);
  const CheckedValues values = config.empty() ? CheckedValues{} : read_config(config);
  const Strategy* configured = strategy_of(values);
  const bool agree = asked.strategy == nullptr || configured == nullptr || asked.strategy == configured ||
                     (asked.strategy->hybrid && asked.strategy->stage == configured->stage);
  require(agree, ErrorKind::kUsage, "--fsdp {} contradicts reshard_after_forward={} in {}",
          asked.strategy == nullptr ? "" : asked.strategy->name,
          configured == nullptr ? "" : values.values.at("reshard_after_forward").dump(), values.source);
  const Strategy* strategy = asked.strategy != nullptr ? asked.strategy
                             : configured != nullptr   ? configured
                                                       : find_strategy("full_shard");
  return {.stage = strategy->stage,
          .hybrid = strategy->hybrid,
          .offload = asked.offload || is_on(values, "cpu_offload"),
          .activation_checkpointing = is_on(values, "activation_checkpointing"),
          .notices = values.notices};
}

std::string fsdp_word(int64_t stage, bool hybrid) {
  const Strategy* nearest = nullptr;
  for (const Strategy& strategy : kStrategies) {
    const bool is_enough = strategy.hybrid == hybrid && strategy.stage >= stage;
    if (is_enough && (nearest == nullptr || strategy.stage < nearest->stage)) nearest = &strategy;
  }
  require(nearest != nullptr, ErrorKind::kInternal, "no word of --fsdp for stage {}", stage);
  return std::string(nearest->name);
}

}  // namespace strake::integrations
