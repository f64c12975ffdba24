#include "strake/tasks/memory_report.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "strake/core/error.h"

namespace strake::tasks {
namespace {

constexpr std::array<const char*, models::kMemoryUses> kUseNames{
    "parameters",       "fp32 master weights", "gradients",
    "optimizer states", "gathered parameters", "gradients being reduced",
    "activations",      "copies being saved",  "workspace of products"};

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }
std::string gibibytes(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

const char* whose(const MemoryLimit& limit) {
  switch (limit.of) {
    case MemoryLimit::Of::kGpu:
      return "memory on a GPU";
    case MemoryLimit::Of::kMachine:
      return "memory on a machine";
    case MemoryLimit::Of::kAddressSpace:
      return "address space in a process";
  }
  return "";
}

// What the limit is of, without what is there beside tensors.
int64_t tensor_bytes(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& limit) {
  if (limit.of == MemoryLimit::Of::kGpu) return variant.plan.rank_bytes();
  return variant.machine_bytes / (limit.of == MemoryLimit::Of::kMachine ? 1 : run.processes_per_machine());
}

}  // namespace

void print_memory(std::ostream& out, const PlannedRun& run, const RunVariant& variant) {
  const auto row = [&](const char* name, const std::string& value) {
    out << fmt::format("  {:<26} {:>12}\n", name, value);
  };
  out << fmt::format("memory {}at its highest, MiB: {}\n", run.is_on_gpus() ? "of a GPU " : "", variant.name);
  for (size_t use = 0; use < models::kMemoryUses; ++use) {
    if (variant.plan.rank[use] > 0) row(kUseNames[use], mebibytes(variant.plan.rank[use]));
  }
  row("total of a rank", mebibytes(variant.plan.rank_bytes()));
  if (run.is_on_gpus()) row("  beside tensors, about", mebibytes(kBesideTensorsOfGpu));
  if (variant.plan.shared_bytes > 0 && run.num_ranks > 1) {
    row("  of it shared by threads", mebibytes(variant.plan.shared_bytes));
  }
  row(run.is_on_gpus() ? "tensors in host memory" : "total of a machine", mebibytes(variant.machine_bytes));
  row("  beside tensors, about", mebibytes(resident_beside_tensors(run)));
  if (variant.disk_bytes > 0) row("scratch disk of a machine", mebibytes(variant.disk_bytes));
}

void print_plan(std::ostream& out, const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits) {
  out << fmt::format("largest micro-batch: {} sequences, {} tokens\n", run.batch.sequences, run.batch.tokens);
  if (run.evaluation.sequences > 0) {
    out << fmt::format("largest batch of an evaluation: {} sequences, {} tokens\n", run.evaluation.sequences,
                       run.evaluation.tokens);
  }
  print_memory(out, run, variant);
  print_limits(out, limits);
}

void print_limits(std::ostream& out, const MemoryLimits& limits) {
  for (const MemoryLimit& limit : limits) out << fmt::format("limit: {} ({})\n", gibibytes(limit.bytes), limit.source);
}

void print_variants(std::ostream& out, const PlannedRun& run, const MemoryLimits& limits,
                    const std::optional<training::RankSpeed>& speed) {
  const auto row = [&](const auto&... cells) { out << fmt::format("  {:<8} {:>10} {:>12} {:>14} {:>6}", cells...); };
  row("stage", "recompute", run.is_on_gpus() ? "MiB a GPU" : "MiB a rank", "MiB a machine", "fits");
  out << (speed ? fmt::format(" {:>11}\n", "s a step") : "\n");
  for (const RunVariant& variant : stage_variants(run)) {
    row(variant.stage.name, variant.recomputes ? "yes" : "no", mebibytes(variant.plan.rank_bytes()),
        mebibytes(variant.machine_bytes), fits(run, variant, limits) ? "yes" : "no");
    PlannedRun other = run;
    other.options = variant.options;
    other.batch = variant.batch;
    out << (speed ? fmt::format(" {:>11.4f}\n", training::step_time(request_of(other), *speed).total()) : "\n");
  }
}

void require_fit(const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits) {
  const auto exceeded = std::ranges::find_if(
      limits, [&](const MemoryLimit& limit) { return needed_bytes(run, variant, limit) > limit.bytes; });
  if (exceeded == limits.end()) return;
  const MemoryLimit& limit = *exceeded;
  const auto other = cheapest_fit(run, limits);
  const int64_t needed = needed_bytes(run, variant, limit);
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
       variant.name, gibibytes(needed), whose(limit), gibibytes(needed - tensor_bytes(run, variant, limit)),
       gibibytes(limit.bytes), limit.source, advice);
}

}  // namespace strake::tasks
