#include "strake/tasks/time_report.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/monitor/number_text.h"
#include "strake/training/machine_speed.h"

namespace strake::tasks {
namespace {

using monitor::count_text;

constexpr double kGiga = 1e9;
constexpr double kAssumedNetwork = 1.25e9;  // bytes per second of a machine: 10 Gbit/s

bool has_several_machines(const PlannedRun& run) { return run.ranks_per_machine < run.num_ranks; }
bool is_hybrid(const PlannedRun& run) { return run.options.sharding.stage.parameters == training::Kept::kGroupShard; }

std::string shared_by_ranks(const PlannedRun& run) {
  if (run.ranks_per_machine == 1) return "";
  return fmt::format(", shared by the {} ranks of a machine", run.ranks_per_machine);
}

std::optional<SpeedFigure> speed_of_arithmetic(const PlannedRun& run, const SpeedFlags& flags,
                                               const training::Crew& crew) {
  if (flags.gflops) return SpeedFigure{*flags.gflops * kGiga, "--gflops"};
  constexpr int64_t kShareOfMemory = 4;
  const auto measured = training::measure_layer({.model = run.model,
                                                 .options = run.options,
                                                 .batch = run.batch,
                                                 .most_bytes = memory_limit().bytes / kShareOfMemory},
                                                crew);
  if (!measured) return std::nullopt;
  constexpr double kSteady = 2;
  return SpeedFigure{
      measured->flops,
      fmt::format("measured: a layer, forward and backward, {} tokens in {}{}", count_text(measured->tokens),
                  to_string(run.options.precision()),
                  measured->spread > kSteady
                      ? fmt::format("; some runs took {:.1f} times as long: the machine is busy", measured->spread)
                      : "")};
}

SpeedFigure speed_of_threads(const PlannedRun& run, const training::Crew& crew) {
  const bool is_threads = run.placement == training::RankPlacement::kThreads;
  return {training::measure_sums_between_ranks(crew),
          fmt::format("measured: sums of gradients between threads here{}",
                      is_threads ? "" : "; processes are slower, as they copy them")};
}

SpeedFigure speed_between_machines(const PlannedRun& run) {
  return {kAssumedNetwork / run.ranks_per_machine, "assumed: 10 Gbit/s" + shared_by_ranks(run)};
}

// Processes that a launcher started, no more than the run has.
struct Measuring {
  std::unique_ptr<comm::Comm> comm;
  int on_machine = 1;
  int threads = 1;
  int machines = 1;

  training::StartedRanks ranks() const { return {.comm = *comm, .on_machine = on_machine, .threads = threads}; }
};

// The first ones of each machine. None: this process is none of them.
std::optional<Measuring> choose_processes(LaunchedRanks& ranks, const PlannedRun& run) {
  const bool may = ranks.place().local_rank < run.ranks_per_machine;
  const std::vector<double> all = comm::all_gather_values(ranks.comm(), {may ? 1.0 : 0.0});
  const double before = std::accumulate(all.begin(), all.begin() + ranks.rank(), 0.0);
  const bool measures = may && before < run.num_ranks;
  auto part = ranks.comm().split(measures ? 0 : 1);
  if (!measures) return std::nullopt;
  const int on_full_machine = std::min(run.ranks_per_machine, ranks.most_on_a_machine());
  const int size = part->size();
  const bool is_full = run.ranks_per_machine == ranks.place().local_size;
  return Measuring{.comm = std::move(part),
                   .on_machine = std::min({run.ranks_per_machine, ranks.place().local_size, size}),
                   .threads = is_full ? ranks.place().num_threads() : threads_per_rank(run.ranks_per_machine),
                   .machines = (size + on_full_machine - 1) / on_full_machine};
}

// In groups of neighbours that share parameters, as training makes them.
SpeedFigure speed_within_groups(const PlannedRun& run, const Measuring& processes) {
  comm::Comm& all = *processes.comm;
  const int of_group = std::min(all.size(), static_cast<int>(run.options.sharding.group_size));
  const int groups = all.size() / of_group;
  const auto group = all.split(std::min(all.rank() / of_group, groups - 1));  // what is left over joins the last one
  const training::StartedRanks ranks{.comm = *group, .on_machine = processes.on_machine, .threads = processes.threads};
  const double own = training::measure_sums_between_ranks(training::Crew::of(run.ranks_per_machine, ranks));
  return {std::ranges::min(comm::all_gather_values(all, {own})),
          fmt::format("measured: sums of gradients between the {} processes of a group", of_group)};
}

void find_communication_of_threads(const PlannedRun& run, const training::Crew& crew, RunSpeeds& speeds) {
  const bool groups_within = is_hybrid(run) && run.options.sharding.group_size <= run.ranks_per_machine;
  if (!has_several_machines(run) || groups_within) speeds.in_group = speed_of_threads(run, crew);
  speeds.communication = has_several_machines(run) ? speed_between_machines(run) : speeds.in_group;
  if (!groups_within) speeds.in_group = speeds.communication;
  if (run.placement == training::RankPlacement::kThreads) return;
  speeds.measure = fmt::format(
      "To have communication measured, start this as the run is: mpirun -n {} strake estimate ...", run.num_ranks);
}

void find_communication_of_processes(const PlannedRun& run, const training::Crew& crew, const Measuring& processes,
                                     RunSpeeds& speeds) {
  const bool lacks_machines = has_several_machines(run) && processes.machines == 1;
  const bool groups_within = is_hybrid(run) && run.options.sharding.group_size <= run.ranks_per_machine;
  if (lacks_machines) {
    speeds.communication = speed_between_machines(run);
    speeds.measure = "To have communication measured, start this on all machines of the run.";
  } else {
    speeds.communication = {
        training::measure_sums_between_ranks(crew),
        fmt::format("measured: sums of gradients between the {} processes{}", processes.comm->size(),
                    processes.machines == 1 ? "" : fmt::format(" on {} machines", processes.machines))};
  }
  const bool has_group = is_hybrid(run) && processes.comm->size() > 1 && (groups_within || !lacks_machines);
  speeds.in_group = has_group ? speed_within_groups(run, processes) : speeds.communication;
}

std::optional<SpeedFigure> speed_of_disk(const PlannedRun& run, const SpeedFlags& flags) {
  const auto figure = [&](double of_machine, const std::string& source) {
    return SpeedFigure{of_machine / run.ranks_per_machine, source + shared_by_ranks(run)};
  };
  if (flags.disk_bandwidth) return figure(*flags.disk_bandwidth * kGiga, "--disk_bandwidth");
  const training::OffloadOptions& offload = run.options.sharding.offload;
  if (!offload.optimizer) return std::nullopt;
  try {
    return figure(training::measure_disk(offload.folder),
                  fmt::format("measured: reading and writing at once in {}", printable(offload.folder.string())));
  } catch (const Error& error) {
    log::warning("the disk is not measured: {}", error.what());
    return std::nullopt;
  }
}

bool has_state_on_host(const PlannedRun& run) {
  const training::OffloadOptions& offload = run.options.sharding.offload;
  return offload.optimizer_to_host || offload.parameters_to_host;
}

// GPUs are not measured: all is as flags say, or nothing is known.
RunSpeeds speeds_of_gpus(const PlannedRun& run, const SpeedFlags& flags, const LaunchedRanks& ranks) {
  const bool are_known = flags.gflops && flags.memory_bandwidth && (flags.bandwidth || run.num_ranks == 1);
  if (!are_known || has_state_on_host(run)) return {};
  RunSpeeds speeds{.arithmetic = SpeedFigure{*flags.gflops * kGiga, "--gflops"},
                   .memory = {*flags.memory_bandwidth * kGiga, "--memory_bandwidth"}};
  if (flags.bandwidth) speeds.communication = speeds.in_group = {*flags.bandwidth * kGiga, "--bandwidth"};
  if (ranks.speaks()) speeds.disk = speed_of_disk(run, flags);
  return speeds;
}

const char* why_not_estimated(const PlannedRun& run) {
  if (!run.is_on_gpus()) {
    return "as a layer is too large to be measured in a quarter of this machine's memory; say --gflops";
  }
  if (has_state_on_host(run)) return "as copies between GPUs and the host's memory are not counted yet";
  return "as GPUs are not measured; say --gflops, --memory_bandwidth and, of several ranks, --bandwidth";
}

// Rounded first: what rounds to -0 is 0.
std::string seconds_text(double seconds) { return fmt::format("{:.4f}", std::round(seconds * 1e4) / 1e4 + 0.0); }

}  // namespace

void SpeedFlags::validate() const {
  visit_fields(*this, [](const char* name, const std::optional<double>& value, const char*) {
    constexpr double kLeast = 1e-6;
    constexpr double kMost = 1e9;
    require(!value || (*value >= kLeast && *value <= kMost), ErrorKind::kUsage, "--{} {} is no number in [{}, {}]",
            name, value.value_or(0), kLeast, kMost);
  });
}

std::optional<training::RankSpeed> RunSpeeds::rank() const {
  if (!arithmetic) return std::nullopt;
  return training::RankSpeed{.flops = arithmetic->per_second,
                             .sent_bytes = communication.per_second,
                             .sent_bytes_in_group = in_group.per_second,
                             .memory_bytes = memory.per_second,
                             .disk_bytes = disk ? std::optional(disk->per_second) : std::nullopt,
                             .threads = threads};
}

RunSpeeds find_speeds(const PlannedRun& run, const SpeedFlags& flags, LaunchedRanks& ranks) {
  if (run.is_on_gpus()) return speeds_of_gpus(run, flags, ranks);
  std::optional<Measuring> processes;
  if (ranks.are_several()) {
    processes = choose_processes(ranks, run);
    if (!processes) return {};
  }
  const auto crew =
      training::Crew::of(run.ranks_per_machine, processes ? std::optional(processes->ranks()) : std::nullopt);
  RunSpeeds speeds{.arithmetic = speed_of_arithmetic(run, flags, crew), .threads = crew.threads};
  if (flags.bandwidth) {
    speeds.communication = speeds.in_group = {*flags.bandwidth * kGiga, "--bandwidth"};
  } else if (run.num_ranks > 1) {
    processes ? find_communication_of_processes(run, crew, *processes, speeds)
              : find_communication_of_threads(run, crew, speeds);
  }
  speeds.memory = flags.memory_bandwidth ? SpeedFigure{*flags.memory_bandwidth * kGiga, "--memory_bandwidth"}
                                         : SpeedFigure{training::measure_memory(crew), "measured: additions in place"};
  if (ranks.speaks()) speeds.disk = speed_of_disk(run, flags);
  return speeds;
}

void print_time(std::ostream& out, const PlannedRun& run, const RunSpeeds& speeds) {
  const auto rank = speeds.rank();
  if (!rank) {
    out << "time of a step: not estimated, " << why_not_estimated(run) << "\n";
    return;
  }
  const auto row = [&](const char* name, const std::string& value, const std::string& source = {}) {
    out << fmt::format("  {:<26} {:>12}{}{}\n", name, value, source.empty() ? "" : "  ", source);
  };
  const training::StepTime time = training::step_time(request_of(run), *rank);
  const bool offloads = run.options.sharding.offload.optimizer;
  const double sequences = sequences_of_step(run);
  const double tokens = sequences * static_cast<double>(run.batch.tokens) / static_cast<double>(run.batch.sequences);
  out << "time of a step, estimated, in seconds\n";
  row("arithmetic", seconds_text(time.arithmetic));
  if (run.num_ranks > 1) row("communication", seconds_text(time.communication));
  if (offloads)
    row("disk", rank->disk_bytes ? seconds_text(time.disk) : "unknown",
        rank->disk_bytes ? "" : "not in the sum: say --disk_bandwidth");
  row("optimizer", seconds_text(time.optimizer));
  if (time.communication + time.disk > 0) row("  hidden behind the others", seconds_text(0 - time.hidden));
  row("a step", seconds_text(time.total()));
  row("sequences a second", fmt::format("{:.1f}", sequences / time.total()));
  row("tokens a second", count_text(std::llround(tokens / time.total())));

  const auto figure = [&](const char* name, const SpeedFigure& speed) {
    row(name, fmt::format("{:.2f}", speed.per_second / kGiga), speed.source);
  };
  const std::string threads = fmt::format(", with {} thread{}", speeds.threads, speeds.threads == 1 ? "" : "s");
  out << fmt::format("\nspeeds of a rank{} and all ranks at work\n", run.is_on_gpus() ? ", its GPU" : threads);
  figure("arithmetic, GFLOP/s", *speeds.arithmetic);
  if (run.num_ranks > 1) figure("communication, GB/s", speeds.communication);
  if (is_hybrid(run)) figure("  within a group, GB/s", speeds.in_group);
  if (offloads && speeds.disk) figure("disk, GB/s", *speeds.disk);
  figure("memory, GB/s", speeds.memory);
  if (!speeds.measure.empty()) out << speeds.measure << "\n";
}

}  // namespace strake::tasks
