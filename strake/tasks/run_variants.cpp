#include "strake/tasks/run_variants.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <utility>

#include "strake/core/error.h"
#include "strake/integrations/fsdp.h"
#include "strake/training/batch_shape.h"
#include "strake/training/trainer.h"

namespace strake::tasks {
namespace {

using training::ShardingStage;

// What differs from the run as it was asked for.
struct Change {
  ShardingStage stage;
  bool recomputes = false;
  int64_t divisor = 1;           // by which the run's micro-batches have become smaller, and more
  bool evaluates_alike = false;  // with batches that are no larger than micro-batches
};

// What is not where ranks compute, from the cheapest to the slowest.
enum class Offloaded { kNothing, kStatesToHost, kParametersToHost, kAllToHost, kStatesToDisk, kAllToDisk };
constexpr std::array kOffloads{Offloaded::kNothing,   Offloaded::kStatesToHost, Offloaded::kParametersToHost,
                               Offloaded::kAllToHost, Offloaded::kStatesToDisk, Offloaded::kAllToDisk};

bool is_to_host(Offloaded what) { return what > Offloaded::kNothing && what < Offloaded::kStatesToDisk; }

Offloaded offloaded(const PlannedRun& run) {
  const training::OffloadOptions& offload = run.options.sharding.offload;
  if (offload.parameters) return Offloaded::kAllToDisk;
  if (offload.optimizer) return Offloaded::kStatesToDisk;
  if (offload.parameters_to_host && offload.optimizer_to_host) return Offloaded::kAllToHost;
  if (offload.parameters_to_host) return Offloaded::kParametersToHost;
  return offload.optimizer_to_host ? Offloaded::kStatesToHost : Offloaded::kNothing;
}

PlannedRun with_offload(PlannedRun run, Offloaded what) {
  if (what == offloaded(run)) return run;  // parameters may be elsewhere than states
  training::OffloadOptions& offload = run.options.sharding.offload;
  offload.optimizer = what == Offloaded::kStatesToDisk || what == Offloaded::kAllToDisk;
  offload.parameters = what == Offloaded::kAllToDisk;
  offload.optimizer_to_host = what == Offloaded::kStatesToHost || what == Offloaded::kAllToHost;
  offload.parameters_to_host = what == Offloaded::kParametersToHost || what == Offloaded::kAllToHost;
  return run;
}

// Of the options; empty: nothing is offloaded.
std::string name_of_offload(const training::OffloadOptions& offload) {
  std::vector<std::string> parts;
  if (offload.optimizer || offload.optimizer_to_host) {
    parts.push_back(fmt::format("offload_optimizer to {}", offload.optimizer ? "nvme" : "cpu"));
  }
  if (offload.parameters || offload.parameters_to_host) {
    const char* const place = offload.parameters ? "nvme" : "cpu";
    const bool is_alike = !parts.empty() && offload.parameters == offload.optimizer;
    if (is_alike) return fmt::format("offload_optimizer and offload_param to {}", place);
    parts.push_back(fmt::format("offload_param to {}", place));
  }
  return fmt::format("{}", fmt::join(parts, " and "));
}

// Measured with RoBERTa-base, micro-batches of 4 and 32 sequences, fp32 and bf16, 2 to 8 ranks.
int64_t beside_tensors(const PlannedRun& run, int64_t of_process) {
  constexpr int64_t kOfThreadRank = int64_t{80} << 20;  // 20 to 110 MiB: what malloc keeps in a heap of its own
  constexpr int64_t kOfMpi = int64_t{64} << 20;         // its connections and shared memory
  const bool is_threads = run.placement == training::RankPlacement::kThreads;
  const int64_t of_ranks = is_threads ? (run.num_ranks - 1) * kOfThreadRank : run.num_ranks > 1 ? kOfMpi : 0;
  return run.processes_per_machine() * (of_process + of_ranks + run.data_bytes);
}

int64_t& batch_size(training::TrainingOptions& options) {
  return options.max_tokens_per_batch > 0 ? options.max_tokens_per_batch : options.per_device_train_batch_size;
}

// By which micro-batches can be made smaller, the least first. Those of a number of sequences are cut into equal ones,
// which leaves steps as they are.
std::vector<int64_t> batch_divisors(training::TrainingOptions options) {
  const int64_t size = batch_size(options);
  const bool counts_tokens = options.max_tokens_per_batch > 0;
  const int64_t most = std::min(size, training::kMostAccumulationSteps / options.gradient_accumulation_steps);
  std::vector<int64_t> divisors;
  for (int64_t divisor = 2; divisor <= most; divisor += counts_tokens ? divisor : 1) {
    if (counts_tokens || size % divisor == 0) divisors.push_back(divisor);
  }
  return divisors;
}

PlannedRun with_smaller_batches(PlannedRun run, int64_t divisor) {
  batch_size(run.options) /= divisor;
  run.options.gradient_accumulation_steps *= divisor;
  run.batch = run.batches.training(run.options);
  return run;
}

std::string name_of_smaller_batches(const training::TrainingOptions& options, int64_t divisor) {
  const std::string size = options.max_tokens_per_batch > 0
                               ? fmt::format("--max_tokens_per_batch {}", options.max_tokens_per_batch)
                               : fmt::format("micro-batches of {} sequence{}", options.per_device_train_batch_size,
                                             options.per_device_train_batch_size == 1 ? "" : "s");
  return fmt::format(", {} and {} times the --gradient_accumulation_steps", size, divisor);
}

std::string fsdp_word_of(const ShardingStage& stage) {
  const auto* const zero = std::ranges::find(training::kZeroStages, std::string_view(stage.name), &ShardingStage::name);
  const bool is_hybrid = zero == training::kZeroStages.end();
  return integrations::fsdp_word(is_hybrid ? 3 : zero - training::kZeroStages.begin(), is_hybrid);
}

// A plan on disk, which --fsdp cannot ask for.
bool needs_deepspeed(const PlannedRun& run) { return run.stages.by_fsdp && run.options.sharding.offload.optimizer; }

std::string name_of_layout(const PlannedRun& run, const ShardingStage& stage) {
  if (run.stages.by_fsdp && !needs_deepspeed(run)) {
    return fmt::format("{} (--fsdp {})", stage.name, fsdp_word_of(stage));
  }
  const bool keeps_groups = run.stages.group_key.empty() || stage.name == run.options.sharding.stage.name;
  return keeps_groups ? stage.name : fmt::format("{} without {}", stage.name, run.stages.group_key);
}

// All as the rank with most, but for copies, of which ranks have parts of different size.
int64_t bytes_of_processes(const models::MemoryByUse& rank, const training::MemoryPlan& plan, int ranks_per_machine) {
  const int64_t copied = rank[static_cast<size_t>(models::MemoryUse::kCheckpointCopies)];
  int64_t of_machine = 0;
  for (size_t first = 0; first < plan.copied_bytes.size(); first += static_cast<size_t>(ranks_per_machine)) {
    const auto begin = plan.copied_bytes.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t count = std::min(plan.copied_bytes.size() - first, static_cast<size_t>(ranks_per_machine));
    of_machine = std::max(of_machine, std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), int64_t{0}));
  }
  return (models::total(rank) - copied) * ranks_per_machine + of_machine;
}

RunVariant variant_of(PlannedRun run, const Change& change) {
  std::string name = name_of_layout(run, change.stage);
  run.options.sharding.stage = change.stage;
  run.options.gradient_checkpointing = change.recomputes;
  const int64_t sequences = run.batch.sequences;
  const bool cuts_evaluation = change.evaluates_alike && run.evaluation.sequences > sequences;
  if (cuts_evaluation) run.evaluation = run.batches.evaluation(sequences);
  const std::string offload = name_of_offload(run.options.sharding.offload);
  RunVariant variant{.name = std::move(name),
                     .stage = change.stage,
                     .recomputes = change.recomputes,
                     .plan = training::plan_memory(request_of(run))};
  if (!offload.empty()) variant.name += " with " + offload;
  if (change.recomputes) {
    variant.name += offload.empty() ? " with --gradient_checkpointing" : " and --gradient_checkpointing";
  }
  if (change.divisor > 1) variant.name += name_of_smaller_batches(run.options, change.divisor);
  if (cuts_evaluation) variant.name += fmt::format(", --per_device_eval_batch_size {}", sequences);
  if (needs_deepspeed(run)) variant.name += ", by --deepspeed instead of --fsdp";
  const bool is_threads = run.placement == training::RankPlacement::kThreads;
  const models::MemoryByUse& rank = run.is_on_gpus() ? variant.plan.host : variant.plan.rank;
  variant.machine_bytes =
      is_threads ? variant.plan.process_bytes : bytes_of_processes(rank, variant.plan, run.ranks_per_machine);
  variant.disk_bytes = variant.plan.disk_bytes * (is_threads ? run.num_ranks : run.ranks_per_machine);
  variant.options = std::move(run.options);
  variant.batch = run.batch;
  return variant;
}

// As configurations are checked: see OffloadOptions.
bool is_allowed(const PlannedRun& run, int stage) {
  if (stage < run.stages.lowest) return false;
  const training::OffloadOptions& offload = run.options.sharding.offload;
  if (!offload.optimizer && !offload.optimizer_to_host && !offload.parameters_to_host) return true;
  const bool needs_parameters = offload.parameters || offload.parameters_to_host || offload.ratio < 1;
  return stage >= (needs_parameters ? training::OffloadOptions::kLowestStageOfParameters
                                    : training::OffloadOptions::kLowestStage);
}

// Layouts that the run may have, those that cost least first.
std::vector<ShardingStage> allowed_stages(const PlannedRun& run) {
  std::vector<ShardingStage> stages;
  for (int stage = 0; stage < static_cast<int>(training::kZeroStages.size()); ++stage) {
    if (is_allowed(run, stage)) stages.push_back(training::kZeroStages[static_cast<size_t>(stage)]);
  }
  const ShardingStage& own = run.options.sharding.stage;
  if (own.parameters == training::Kept::kGroupShard) stages.push_back(own);
  return stages;
}

// Every layout without, and then with recomputation.
std::vector<Change> stage_changes(const PlannedRun& run) {
  std::vector<Change> changes;
  for (const bool recomputes : {false, true}) {
    for (const ShardingStage& stage : allowed_stages(run)) {
      changes.push_back({.stage = stage, .recomputes = recomputes});
    }
  }
  return changes;
}

// Smaller batches of an evaluation change no result.
std::optional<RunVariant> fit_with(const PlannedRun& run, Change change, const MemoryLimits& limits) {
  for (const bool evaluates_alike : {false, true}) {
    change.evaluates_alike = evaluates_alike;
    RunVariant variant = variant_of(run, change);
    if (fits(run, variant, limits)) return variant;
    if (run.evaluation.sequences <= variant.batch.sequences) break;
  }
  return std::nullopt;
}

std::optional<RunVariant> cheapest_fit_with_its_offload(const PlannedRun& run, const MemoryLimits& limits) {
  for (const Change& change : stage_changes(run)) {
    if (auto variant = fit_with(run, change, limits)) return variant;
  }
  for (const int64_t divisor : batch_divisors(run.options)) {
    const PlannedRun smaller = with_smaller_batches(run, divisor);
    for (const ShardingStage& stage : allowed_stages(run)) {
      const Change change{.stage = stage, .recomputes = true, .divisor = divisor};
      if (auto variant = fit_with(smaller, change, limits)) return variant;
    }
    if (smaller.batch.sequences <= 1) break;
  }
  return std::nullopt;
}

}  // namespace

training::MemoryPlanRequest request_of(const PlannedRun& run) {
  return {.model = run.model,
          .options = run.options,
          .batch = run.batch,
          .evaluation = run.evaluation,
          .evaluation_rows = run.evaluation_rows,
          .outputs_of_row = run.outputs_of_row,
          .num_ranks = run.num_ranks,
          .placement = run.placement,
          .shares_memory = run.shares_memory,
          .device = run.device};
}

double sequences_of_step(const PlannedRun& run) {
  return static_cast<double>(run.batch.sequences * run.options.gradient_accumulation_steps * run.num_ranks);
}

models::BatchShape largest_batch(const models::Model& model, const data::TokenDataset& dataset,
                                 const training::TrainingOptions& options, const RunSize& size) {
  constexpr int64_t kMostSequences = 2'000'000;  // of more than an epoch: a few seconds
  const data::BatchPlan plan(dataset.offsets(), training::batch_options(options));
  models::BatchShape largest;
  int64_t longest = 0;
  data::Cursor cursor;
  int64_t sequences = 0;
  for (int64_t step = 0; step < size.steps && (cursor.epoch == 0 || sequences < kMostSequences); ++step) {
    const data::GlobalStep global = plan.next_step(cursor, size.ranks * options.gradient_accumulation_steps);
    for (const data::MicroBatch& batch : global.micro_batches) {
      const models::BatchShape shape = training::shape_of(model, dataset, batch);
      longest = std::max(longest, shape.longest);
      if (shape.tokens > largest.tokens) largest = shape;
    }
    sequences += global.num_sequences();
    cursor = global.next;
  }
  largest.longest = longest;  // of another one, perhaps
  return largest;
}

int64_t checkpoint_bytes(const PlannedRun& run) {
  const auto num_states = static_cast<int64_t>(optim::Optimizer(run.options.optimizer_settings()).states().size());
  const int64_t of_state = training::element_size(run.options.state_precision());
  return run.model.num_parameters() * static_cast<int64_t>(sizeof(float)) +
         run.model.num_trained_parameters() * num_states * of_state;
}

int64_t bytes_of(const data::TokenDataset& dataset) {
  constexpr int64_t kOfToken = 4;
  constexpr int64_t kOfSequence = 24;  // where it begins, its row, its label, its second part
  const bool has_classes = dataset.label_kind() == data::TokenLabelKind::kTokenClasses;
  return dataset.total_tokens() * kOfToken * (has_classes ? 2 : 1) + dataset.size() * kOfSequence;
}

RunVariant plan_of(const PlannedRun& run) {
  return variant_of(run, {.stage = run.options.sharding.stage, .recomputes = run.options.gradient_checkpointing});
}

std::vector<RunVariant> stage_variants(const PlannedRun& run) {
  std::vector<RunVariant> variants;
  for (const Change& change : stage_changes(run)) variants.push_back(variant_of(run, change));
  return variants;
}

int64_t resident_beside_tensors(const PlannedRun& run) { return beside_tensors(run, kResidentBesideTensors); }

int64_t needed_bytes(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& limit) {
  switch (limit.of) {
    case MemoryLimit::Of::kGpu:
      return variant.plan.rank_bytes() + kBesideTensorsOfGpu;
    case MemoryLimit::Of::kMachine:
      return variant.machine_bytes + resident_beside_tensors(run);
    case MemoryLimit::Of::kAddressSpace:
      return (variant.machine_bytes + beside_tensors(run, kAddressesBesideTensors)) / run.processes_per_machine();
  }
  fail(ErrorKind::kInternal, "a limit of nothing");
}

bool fits(const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits) {
  return std::ranges::all_of(
      limits, [&](const MemoryLimit& limit) { return needed_bytes(run, variant, limit) <= limit.bytes; });
}

std::optional<RunVariant> cheapest_fit(const PlannedRun& run, const MemoryLimits& limits) {
  if (run.options.keeps_copies() && !fits(run, plan_of(run), limits)) {
    PlannedRun without = run;
    without.options.async_save = false;
    auto variant = cheapest_fit(without, limits);
    if (variant) variant->name += ", without --async_save, checkpoint.writer.decoupled and nebula";
    return variant;
  }
  for (const Offloaded what : kOffloads) {
    if (what < offloaded(run) || (is_to_host(what) && !run.is_on_gpus())) continue;
    if (auto variant = cheapest_fit_with_its_offload(with_offload(run, what), limits)) return variant;
  }
  return std::nullopt;
}

}  // namespace strake::tasks
