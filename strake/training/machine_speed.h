#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "strake/comm/comm.h"
#include "strake/models/model.h"
#include "strake/training/options.h"

// What this machine does, measured in about a second, for the time of a run that is not started. Every measurement is
// made by several ranks at once, because a core that works alone is faster: by threads, or by the processes that a
// launcher started, which call the same measurements in the same order; then the slowest rank counts.
namespace strake::training {

// Ranks that are processes already.
struct StartedRanks {
  comm::Comm& comm;
  int on_machine = 1;  // those of them that share this one
  int threads = 1;     // of each
};

// The ranks of this machine. If it has fewer cores than they have threads, only some of them are at work at a time.
struct Crew {
  int ranks = 1;
  int threads = 1;                                     // of each that compute
  int at_once = 1;                                     // ranks that have their cores for themselves
  std::optional<StartedRanks> started = std::nullopt;  // who measures; none: threads that are made for it

  static Crew of(int ranks_on_machine, const std::optional<StartedRanks>& started = std::nullopt);
  // Ranks of this machine that measure together.
  int measuring() const { return started ? started->on_machine : at_once; }
  // What one rank gets of a speed that was measured with this many.
  double share(int measured) const { return static_cast<double>(measured) / ranks; }
};

struct ArithmeticSpeed {
  double flops = 0;    // per second
  int64_t tokens = 0;  // of the batch that it was measured with
  double spread = 1;   // the slowest of its runs took so many times the fastest, which is the one that counts
};

struct LayerMeasurement {
  const models::Model& model;
  const TrainingOptions& options;  // precision
  models::BatchShape batch;        // of a micro-batch; the measurement takes no more than that
  int64_t most_bytes = 0;          // of this machine, for tensors of all its ranks together
};

// Forward and backward pass of a layer in the middle of the model, with random weights: its matrix products and what is
// between them, in the kernels and libraries that training uses. None: not even one sequence fits into the bytes.
std::optional<ArithmeticSpeed> measure_layer(const LayerMeasurement& what, const Crew& crew);

// Bytes per second that a rank sends to the others while gradients are summed up, on one thread each as in training;
// of at least two threads, or of all processes that were started, at least two, on other machines too.
double measure_sums_between_ranks(const Crew& crew);

// Bytes per second that a rank reads and writes while it adds one large vector to another.
double measure_memory(const Crew& crew);

// Bytes per second that this machine reads and writes on the disk of a folder, both at once as the optimizer's pass
// does; of a scratch file of 256 MiB. Error (kIo) naming the folder where there is none, or no room.
double measure_disk(const std::filesystem::path& folder);

}  // namespace strake::training
