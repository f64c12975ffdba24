#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "strake/tasks/launched_ranks.h"
#include "strake/tasks/memory_report.h"
#include "strake/training/step_time.h"

namespace strake::tasks {

// How fast another machine is; what is not said is measured on this one. GB are 10^9 bytes.
struct SpeedFlags {
  std::optional<double> gflops;
  std::optional<double> bandwidth;
  std::optional<double> memory_bandwidth;
  std::optional<double> disk_bandwidth;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("gflops", self.gflops, "GFLOP/s that a rank reaches; by default measured here, with a layer of the model");
    visit("bandwidth", self.bandwidth,
          "GB/s (10^9 bytes) that a rank sends to others; by default measured: between the processes that mpirun "
          "started, else between threads of this machine, and machines that are not there are taken to have 1.25 GB/s "
          "(10 Gbit/s) for the ranks of one together");
    visit("memory_bandwidth", self.memory_bandwidth,
          "GB/s of memory that a rank reads and writes, for the time of the optimizer; by default measured here");
    visit(
        "disk_bandwidth", self.disk_bandwidth,
        "GB/s of a machine's disk, for state that is offloaded to nvme; by default measured with 256 MiB in nvme_path");
  }
  // Error (kUsage) for what is no positive number.
  void validate() const;
};

struct SpeedFigure {
  double per_second = 0;  // FLOP or bytes, of one rank while all are at work
  std::string source;     // for people: measured, assumed, or a flag
};

struct RunSpeeds {
  std::optional<SpeedFigure> arithmetic;  // none: not even measured; of GPUs, flags do not say all
  SpeedFigure communication;
  SpeedFigure in_group;  // hybrid: between ranks that share parameters
  SpeedFigure memory;
  std::optional<SpeedFigure> disk;
  int threads = 1;      // of a rank
  std::string measure;  // how to have communication measured; empty: it is, or a flag says it

  // None without arithmetic.
  std::optional<training::RankSpeed> rank() const;
};

// Takes flags first, and about a second for what they do not say; another one or two for a disk. Of GPUs flags alone.
// Collective: launched
// ranks measure together, but no more of them than the run has on its machines. Rank 0 gets the result.
RunSpeeds find_speeds(const PlannedRun& run, const SpeedFlags& flags, LaunchedRanks& ranks);

// Time of an optimizer step and its parts, and the speeds that it was estimated with.
void print_time(std::ostream& out, const PlannedRun& run, const RunSpeeds& speeds);

}  // namespace strake::tasks
