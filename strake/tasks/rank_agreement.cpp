#include "strake/tasks/rank_agreement.h"

#include <algorithm>
#include <type_traits>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/tasks/run_folder.h"
#include "strake/training/step_settings.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

void add_flags(const training::TrainingOptions& options, Json& values) {
  training::TrainingOptions::visit_fields(options, [&](const char* name, const auto& field, const char*) {
    if constexpr (IsOptional<std::decay_t<decltype(field)>>::value) {
      values[name] = field ? Json(*field) : Json();
    } else {
      values[name] = field;
    }
  });
}

void add_sharding(const training::ShardingOptions& sharding, Json& values) {
  values["sharding"] = sharding.stage.name;
  values["ranks of a group"] = sharding.group_size;
  values["persistence threshold"] = sharding.persistence_threshold;
  values["persistence threshold of the model"] = sharding.most_persistent;
  values["offload_optimizer"] = sharding.offload.optimizer || sharding.offload.optimizer_to_host;
  values["offload_param"] = sharding.offload.parameters || sharding.offload.parameters_to_host;
  values["offload_optimizer.ratio"] = sharding.offload.ratio;
}

std::string short_text(const Json& values, const std::string& key) {
  constexpr size_t kMost = 100;
  const std::string text = values.contains(key) ? json_text(values[key]) : "missing";
  return printable(text.size() > kMost ? text.substr(0, kMost) + "..." : text);
}

std::string first_difference(const Json& own, const Json& of_first) {
  for (const Json* values : {&own, &of_first}) {
    for (const auto& [key, value] : values->items()) {
      if (own.contains(key) && of_first.contains(key) && own[key] == of_first[key]) continue;
      return fmt::format("{} is {} here and {} on rank 0", key, short_text(own, key), short_text(of_first, key));
    }
  }
  return "";
}

}  // namespace

std::optional<fs::path> find_resume_together(const TrainConfig& config, comm::Comm& ranks) {
  std::optional<fs::path> found;
  if (ranks.rank() == 0) found = find_resume(config);
  const fs::path path = comm::broadcast_text(ranks, found ? found->string() : "", 0);
  if (path.empty()) return std::nullopt;
  if (ranks.rank() != 0) checkpoint::verify_checkpoint(path);
  return std::optional(path);
}

Json course_of_run(const TrainConfig& config, const Json& fingerprint, const Json& evaluation,
                   const std::optional<fs::path>& resume_from) {
  Json values = fingerprint;
  add_flags(config.training, values);
  values.update(training::step_settings(config.training, 0));
  add_sharding(config.training.sharding, values);
  values["device"] = config.device;
  if (!evaluation.is_null()) values.update(evaluation);
  values["checkpoint"] = resume_from ? Json(checkpoint::manifest_sum(*resume_from)) : Json();
  return values;
}

void require_alike(const Json& own, comm::Comm& ranks) {
  const std::string text = json_text(own);
  const auto sums = comm::all_gather_values(ranks, {static_cast<double>(crc32c(text.data(), text.size()))});
  if (std::ranges::all_of(sums, [&](double sum) { return sum == sums.front(); })) return;
  const Json of_first = Json::parse(comm::broadcast_text(ranks, text, 0));
  const std::string difference = first_difference(own, of_first);
  require(difference.empty(), ErrorKind::kUsage, "all ranks must be started with the same settings and data, and {}",
          difference);
  ranks.barrier();  // until the ranks that differ have said so
  fail(ErrorKind::kInternal, "ranks differ, and none says in what");
}

}  // namespace strake::tasks
