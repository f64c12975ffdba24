#include "strake/tasks/memory_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

#include "strake/core/error.h"
#include "strake/training/trainer.h"

namespace strake::tasks {
namespace {

using training::ShardingStage;

constexpr std::array<const char*, models::kMemoryUses> kUseNames{
    "parameters",          "fp32 master weights",     "gradients",   "optimizer states",
    "gathered parameters", "gradients being reduced", "activations", "copies being saved"};

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }
std::string gibibytes(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

// What differs from the run as it was asked for.
struct Change {
  ShardingStage stage;
  bool recomputes = false;
  int64_t divisor = 1;           // by which the run's micro-batches have become smaller, and more
  bool evaluates_alike = false;  // with batches that are no larger than micro-batches
};

enum class OnDisk { kNothing, kStates, kAll };

OnDisk on_disk(const PlannedRun& run) {
  const training::OffloadOptions& offload = run.options.sharding.offload;
  return offload.parameters ? OnDisk::kAll : offload.optimizer ? OnDisk::kStates : OnDisk::kNothing;
}

PlannedRun with_on_disk(PlannedRun run, OnDisk what) {
  run.options.sharding.offload.optimizer = what != OnDisk::kNothing;
  run.options.sharding.offload.parameters = what == OnDisk::kAll;
  return run;
}

// Measured with RoBERTa-base, micro-batches of 4 and 32 sequences, fp32 and bf16, 2 to 8 ranks.
int64_t beside_tensors(const PlannedRun& run, int64_t of_process) {
  constexpr int64_t kOfThreadRank = int64_t{80} << 20;  // 20 to 110 MiB: what malloc keeps in a heap of its own
  constexpr int64_t kOfMpi = int64_t{64} << 20;         // its connections and shared memory
  const bool is_threads = run.placement == training::RankPlacement::kThreads;
  const int64_t of_ranks = is_threads ? (run.num_ranks - 1) * kOfThreadRank : run.num_ranks > 1 ? kOfMpi : 0;
  return run.processes_per_machine() * (of_process + of_ranks + run.data_bytes);
}

bool fits(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& limit) {
  return needed_bytes(run, variant, limit) <= limit.bytes;
}

const char* whose(const MemoryLimit& limit) {
  return limit.of == MemoryLimit::Of::kMachine ? "memory on a machine" : "address space in a process";
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

std::string name_of_layout(const PlannedRun& run, const ShardingStage& stage) {
  const bool keeps_groups = run.stages.group_key.empty() || stage.name == run.options.sharding.stage.name;
  return keeps_groups ? stage.name : fmt::format("{} without {}", stage.name, run.stages.group_key);
}

// All as the rank with most, but for copies, of which ranks have parts of different size.
int64_t bytes_of_processes(const training::MemoryPlan& plan, int ranks_per_machine) {
  const int64_t copied = plan.rank[static_cast<size_t>(models::MemoryUse::kCheckpointCopies)];
  int64_t of_machine = 0;
  for (size_t first = 0; first < plan.copied_bytes.size(); first += static_cast<size_t>(ranks_per_machine)) {
    const auto begin = plan.copied_bytes.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t count = std::min(plan.copied_bytes.size() - first, static_cast<size_t>(ranks_per_machine));
    of_machine = std::max(of_machine, std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), int64_t{0}));
  }
  return (plan.rank_bytes() - copied) * ranks_per_machine + of_machine;
}

RunVariant variant_of(PlannedRun run, const Change& change) {
  std::string name = name_of_layout(run, change.stage);
  run.options.sharding.stage = change.stage;
  run.options.gradient_checkpointing = change.recomputes;
  const int64_t sequences = run.batch.sequences;
  const bool cuts_evaluation = change.evaluates_alike && run.evaluation.sequences > sequences;
  if (cuts_evaluation) run.evaluation = run.batches.evaluation(sequences);
  const OnDisk disk = on_disk(run);
  RunVariant variant{.name = std::move(name),
                     .stage = change.stage,
                     .has_states_on_disk = disk != OnDisk::kNothing,
                     .has_parameters_on_disk = disk == OnDisk::kAll,
                     .recomputes = change.recomputes,
                     .plan = training::plan_memory(request_of(run))};
  if (disk == OnDisk::kStates) variant.name += " with offload_optimizer to nvme";
  if (disk == OnDisk::kAll) variant.name += " with offload_optimizer and offload_param to nvme";
  if (change.recomputes) {
    variant.name += disk == OnDisk::kNothing ? " with --gradient_checkpointing" : " and --gradient_checkpointing";
  }
  if (change.divisor > 1) variant.name += name_of_smaller_batches(run.options, change.divisor);
  if (cuts_evaluation) variant.name += fmt::format(", --per_device_eval_batch_size {}", sequences);
  const bool is_threads = run.placement == training::RankPlacement::kThreads;
  variant.machine_bytes =
      is_threads ? variant.plan.process_bytes : bytes_of_processes(variant.plan, run.ranks_per_machine);
  variant.disk_bytes = variant.plan.disk_bytes * (is_threads ? run.num_ranks : run.ranks_per_machine);
  variant.options = std::move(run.options);
  variant.batch = run.batch;
  return variant;
}

// As configurations are checked: see OffloadOptions.
bool is_allowed(const PlannedRun& run, int stage) {
  if (stage < run.stages.lowest) return false;
  const training::OffloadOptions& offload = run.options.sharding.offload;
  if (!offload.optimizer) return true;
  const bool needs_parameters = offload.parameters || offload.ratio < 1;
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
std::optional<RunVariant> fit_with(const PlannedRun& run, Change change, const MemoryLimit& limit) {
  for (const bool evaluates_alike : {false, true}) {
    change.evaluates_alike = evaluates_alike;
    RunVariant variant = variant_of(run, change);
    if (fits(run, variant, limit)) return variant;
    if (run.evaluation.sequences <= variant.batch.sequences) break;
  }
  return std::nullopt;
}

std::optional<RunVariant> cheapest_fit_with_its_disk(const PlannedRun& run, const MemoryLimit& limit) {
  for (const Change& change : stage_changes(run)) {
    if (auto variant = fit_with(run, change, limit)) return variant;
  }
  for (const int64_t divisor : batch_divisors(run.options)) {
    const PlannedRun smaller = with_smaller_batches(run, divisor);
    for (const ShardingStage& stage : allowed_stages(run)) {
      const Change change{.stage = stage, .recomputes = true, .divisor = divisor};
      if (auto variant = fit_with(smaller, change, limit)) return variant;
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
          .shares_memory = run.shares_memory};
}

double sequences_of_step(const PlannedRun& run) {
  return static_cast<double>(run.batch.sequences * run.options.gradient_accumulation_steps * run.num_ranks);
}

models::BatchShape largest_batch(const data::TokenDataset& dataset, const training::TrainingOptions& options,
                                 int64_t num_ranks) {
  constexpr int64_t kMostSequences = 2'000'000;  // of more than an epoch: about a second
  const data::BatchPlan plan(dataset.offsets(), training::batch_options(options));
  const int64_t steps = training::total_steps(options, dataset, num_ranks);
  models::BatchShape largest;
  data::Cursor cursor;
  int64_t sequences = 0;
  for (int64_t step = 0; step < steps && (cursor.epoch == 0 || sequences < kMostSequences); ++step) {
    const data::GlobalStep global = plan.next_step(cursor, num_ranks * options.gradient_accumulation_steps);
    for (const data::MicroBatch& batch : global.micro_batches) {
      int64_t tokens = 0;
      for (const int64_t i : batch) tokens += dataset.length(i);
      if (tokens > largest.tokens) largest = {tokens, static_cast<int64_t>(batch.size())};
    }
    sequences += global.num_sequences();
    cursor = global.next;
  }
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
  return dataset.total_tokens() * kOfToken + dataset.size() * kOfSequence;
}

RunVariant plan_of(const PlannedRun& run) {
  return variant_of(run, {.stage = run.options.sharding.stage, .recomputes = run.options.gradient_checkpointing});
}

std::vector<RunVariant> stage_variants(const PlannedRun& run) {
  std::vector<RunVariant> variants;
  for (const Change& change : stage_changes(run)) variants.push_back(variant_of(run, change));
  return variants;
}

int64_t needed_bytes(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& limit) {
  if (limit.of == MemoryLimit::Of::kMachine) return variant.machine_bytes + beside_tensors(run, kResidentBesideTensors);
  return (variant.machine_bytes + beside_tensors(run, kAddressesBesideTensors)) / run.processes_per_machine();
}

std::optional<RunVariant> cheapest_fit(const PlannedRun& run, const MemoryLimit& limit) {
  if (run.options.keeps_copies() && !fits(run, plan_of(run), limit)) {
    PlannedRun without = run;
    without.options.async_save = false;
    auto variant = cheapest_fit(without, limit);
    if (variant) variant->name += ", without --async_save, checkpoint.writer.decoupled and nebula";
    return variant;
  }
  for (const OnDisk disk : {OnDisk::kNothing, OnDisk::kStates, OnDisk::kAll}) {
    if (disk < on_disk(run)) continue;
    if (auto variant = cheapest_fit_with_its_disk(with_on_disk(run, disk), limit)) return variant;
  }
  return std::nullopt;
}

void print_memory(std::ostream& out, const PlannedRun& run, const RunVariant& variant) {
  const auto row = [&](const char* name, const std::string& value) {
    out << fmt::format("  {:<26} {:>12}\n", name, value);
  };
  out << fmt::format("memory at its highest, MiB: {}\n", variant.name);
  for (size_t use = 0; use < models::kMemoryUses; ++use) {
    if (variant.plan.rank[use] > 0) row(kUseNames[use], mebibytes(variant.plan.rank[use]));
  }
  row("total of a rank", mebibytes(variant.plan.rank_bytes()));
  if (variant.plan.shared_bytes > 0 && run.num_ranks > 1) {
    row("  of it shared by threads", mebibytes(variant.plan.shared_bytes));
  }
  row("total of a machine", mebibytes(variant.machine_bytes));
  row("  beside tensors, about", mebibytes(beside_tensors(run, kResidentBesideTensors)));
  if (variant.disk_bytes > 0) row("scratch disk of a machine", mebibytes(variant.disk_bytes));
}

void print_plan(std::ostream& out, const PlannedRun& run, const RunVariant& variant, const MemoryLimit& machine) {
  out << fmt::format("largest micro-batch: {} sequences, {} tokens\n", run.batch.sequences, run.batch.tokens);
  if (run.evaluation.sequences > 0) {
    out << fmt::format("largest batch of an evaluation: {} sequences, {} tokens\n", run.evaluation.sequences,
                       run.evaluation.tokens);
  }
  print_memory(out, run, variant);
  out << fmt::format("limit: {:.2f} GiB ({})\n", static_cast<double>(machine.bytes) / (1 << 30), machine.source);
}

void print_variants(std::ostream& out, const PlannedRun& run, const MemoryLimit& limit,
                    const std::optional<training::RankSpeed>& speed) {
  const auto row = [&](const auto&... cells) { out << fmt::format("  {:<8} {:>10} {:>12} {:>14} {:>6}", cells...); };
  row("stage", "recompute", "MiB a rank", "MiB a machine", "fits");
  out << (speed ? fmt::format(" {:>11}\n", "s a step") : "\n");
  for (const RunVariant& variant : stage_variants(run)) {
    row(variant.stage.name, variant.recomputes ? "yes" : "no", mebibytes(variant.plan.rank_bytes()),
        mebibytes(variant.machine_bytes), fits(run, variant, limit) ? "yes" : "no");
    PlannedRun other = run;
    other.options = variant.options;
    other.batch = variant.batch;
    out << (speed ? fmt::format(" {:>11.4f}\n", training::step_time(request_of(other), *speed).total()) : "\n");
  }
}

void require_fit(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& limit) {
  if (fits(run, variant, limit)) return;
  const auto other = cheapest_fit(run, limit);
  const int64_t needed = needed_bytes(run, variant, limit);
  const int64_t tensors =
      variant.machine_bytes / (limit.of == MemoryLimit::Of::kMachine ? 1 : run.processes_per_machine());
  std::string advice =
      "not even micro-batches of one sequence with zero-3, --gradient_checkpointing and all of "
      "offload_optimizer and offload_param on nvme fit";
  if (other) {
    advice = fmt::format("the nearest plan that fits takes {}{}: {}", gibibytes(needed_bytes(run, *other, limit)),
                         other->disk_bytes > 0 ? fmt::format(" and {} of disk", gibibytes(other->disk_bytes)) : "",
                         other->name);
  }
  fail(ErrorKind::kUsage, "{}{} takes {} of {}, {} of it beside tensors, more than {} ({}); {}",
       run.options.precision() == training::Precision::kFp32 ? ""
                                                             : fmt::format("{} ", to_string(run.options.precision())),
       variant.name, gibibytes(needed), whose(limit), gibibytes(needed - tensors), gibibytes(limit.bytes), limit.source,
       advice);
}

}  // namespace strake::tasks
