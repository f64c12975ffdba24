#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace strake::models {

// What memory of a training run is for.
enum class MemoryUse {
  kParameters,
  kMasterWeights,     // fp32 copies of bf16 parameters
  kGradients,         // the sum over a step's micro-batches
  kOptimizer,         // its states
  kGatherBuffers,     // parameters that are whole while a block is at work
  kGradientBuffers,   // gradients of a micro-batch on their way to the sum
  kActivations,       // all that belongs to a micro-batch
  kCheckpointCopies,  // of what is written while training goes on
  kLibraries          // what matrix products on GPUs work in
};
inline constexpr size_t kMemoryUses = 9;

using MemoryByUse = std::array<int64_t, kMemoryUses>;  // bytes

int64_t total(const MemoryByUse& bytes);

// Adds up the memory of a run that is only gone through, not computed, and remembers its highest moment.
class MemoryMeter {
 public:
  void take(MemoryUse use, int64_t bytes);
  void give_back(MemoryUse use, int64_t bytes) { now_[static_cast<size_t>(use)] -= bytes; }
  // Memory that is given back with the last copy of what is returned. The meter must outlive it.
  std::shared_ptr<const void> lend(MemoryUse use, int64_t bytes);

  const MemoryByUse& now() const { return now_; }
  const MemoryByUse& peak() const { return peak_; }  // at the moment when the total was largest

 private:
  MemoryByUse now_{};
  MemoryByUse peak_{};
};

}  // namespace strake::models
