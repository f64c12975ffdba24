#include "strake/tasks/memory_report.h"

#include <array>

#include "strake/core/error.h"
#include "strake/training/trainer.h"

namespace strake::tasks {
namespace {

using training::ShardingStage;

constexpr std::array<const char*, models::kMemoryUses> kUseNames{
    "parameters",          "fp32 master weights",     "gradients",  "optimizer states",
    "gathered parameters", "gradients being reduced", "activations"};

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }
std::string gibibytes(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

RunVariant variant_of(PlannedRun run, const ShardingStage& stage, bool recomputes, int64_t divisor) {
  run.options.sharding.stage = stage;
  run.options.gradient_checkpointing = recomputes;
  const int64_t sequences = (run.batch.sequences + divisor - 1) / divisor;
  if (run.batch.sequences > 0) {
    run.batch.tokens = (run.batch.tokens * sequences + run.batch.sequences - 1) / run.batch.sequences;
  }
  run.batch.sequences = sequences;
  if (divisor > 1) run.options.gradient_accumulation_steps *= divisor;
  RunVariant variant{.name = stage.name,
                     .stage = stage,
                     .recomputes = recomputes,
                     .batch_divisor = divisor,
                     .plan = training::plan_memory({.model = run.model,
                                                    .options = run.options,
                                                    .batch = run.batch,
                                                    .num_ranks = run.num_ranks,
                                                    .placement = run.placement})};
  if (recomputes) variant.name += " with --gradient_checkpointing";
  if (divisor > 1) {
    variant.name += fmt::format(", micro-batches of {} sequences and {} times the --gradient_accumulation_steps",
                                sequences, divisor);
  }
  variant.machine_bytes = run.placement == training::RankPlacement::kThreads
                              ? variant.plan.process_bytes
                              : variant.plan.rank_bytes() * run.ranks_per_machine;
  return variant;
}

}  // namespace

models::BatchShape largest_batch(const data::TokenDataset& dataset, const training::TrainingOptions& options,
                                 int64_t num_ranks) {
  const data::BatchPlan plan(dataset.offsets(), training::batch_options(options));
  models::BatchShape largest;
  for (data::Cursor cursor; cursor.epoch == 0;) {
    data::GlobalStep step = plan.next_step(cursor, num_ranks * options.gradient_accumulation_steps);
    for (const data::MicroBatch& batch : step.micro_batches) {
      int64_t tokens = 0;
      for (const int64_t i : batch) tokens += dataset.length(i);
      if (tokens > largest.tokens) largest = {tokens, static_cast<int64_t>(batch.size())};
    }
    cursor = step.next;
  }
  return largest;
}

RunVariant plan_of(const PlannedRun& run) {
  return variant_of(run, run.options.sharding.stage, run.options.gradient_checkpointing, 1);
}

std::vector<RunVariant> stage_variants(const PlannedRun& run) {
  std::vector<RunVariant> variants;
  for (const bool recomputes : {false, true}) {
    for (const ShardingStage& stage : training::kZeroStages) {
      variants.push_back(variant_of(run, stage, recomputes, 1));
    }
  }
  return variants;
}

std::optional<RunVariant> cheapest_fit(const PlannedRun& run, int64_t machine_bytes) {
  for (RunVariant& variant : stage_variants(run)) {
    if (variant.machine_bytes <= machine_bytes) return std::move(variant);
  }
  for (int64_t divisor = 2; divisor < 2 * run.batch.sequences; divisor *= 2) {
    for (const ShardingStage& stage : {training::kZero2, training::kZero3}) {
      RunVariant variant = variant_of(run, stage, true, divisor);
      if (variant.machine_bytes <= machine_bytes) return variant;
    }
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
}

void print_plan(std::ostream& out, const PlannedRun& run, const RunVariant& variant, const MemoryLimit& machine) {
  out << fmt::format("largest micro-batch of the first epoch: {} sequences, {} tokens\n", run.batch.sequences,
                     run.batch.tokens);
  print_memory(out, run, variant);
  out << fmt::format("limit: {:.2f} GiB ({})\n", static_cast<double>(machine.bytes) / (1 << 30), machine.source);
}

void print_variants(std::ostream& out, const std::vector<RunVariant>& variants, int64_t limit_bytes) {
  out << fmt::format("  {:<8} {:>10} {:>12} {:>14} {:>6}\n", "stage", "recompute", "MiB a rank", "MiB a machine",
                     "fits");
  for (const RunVariant& variant : variants) {
    out << fmt::format("  {:<8} {:>10} {:>12} {:>14} {:>6}\n", variant.stage.name, variant.recomputes ? "yes" : "no",
                       mebibytes(variant.plan.rank_bytes()), mebibytes(variant.machine_bytes),
                       variant.machine_bytes <= limit_bytes ? "yes" : "no");
  }
}

void require_fit(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& machine) {
  if (variant.machine_bytes <= machine.bytes) return;
  const auto other = cheapest_fit(run, machine.bytes);
  const std::string advice =
      other ? fmt::format("the nearest plan that fits takes {}: {}", gibibytes(other->machine_bytes), other->name)
            : "not even micro-batches of one sequence with zero-3 and --gradient_checkpointing fit";
  fail(ErrorKind::kUsage, "{}{} takes {} of memory on a machine, more than {} ({}); {}",
       run.options.precision() == training::Precision::kFp32 ? ""
                                                             : fmt::format("{} ", to_string(run.options.precision())),
       variant.name, gibibytes(variant.machine_bytes), gibibytes(machine.bytes), machine.source, advice);
}

}  // namespace strake::tasks
