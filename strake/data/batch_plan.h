#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strake/data/epoch_order.h"

namespace strake::data {

// Indices into the dataset, in the order in which they are packed.
using MicroBatch = std::vector<int64_t>;

// Where a run stands: the next sequence is the one at `position` of the order of `epoch`. This, the seed and the batch
// options are all that a checkpoint needs to continue with the same batches.
struct Cursor {
  int64_t epoch = 0;
  int64_t position = 0;
  bool operator==(const Cursor&) const = default;
};

// What becomes of a last micro-batch of an epoch that has fewer sequences than asked for.
enum class LastBatch { kKeep, kDrop };

struct BatchOptions {
  int64_t sequences = 8;   // per micro-batch; not used if max_tokens is set
  int64_t max_tokens = 0;  // if > 0: as many sequences as fit; a longer sequence stands alone
  LastBatch last = LastBatch::kKeep;
  uint64_t seed = 42;
  Shuffle shuffle = Shuffle::kOn;
};

// The micro-batches of one optimizer step. With W ranks and k accumulation steps, rank r at accumulation step j takes
// number j * W + r, so the sequence of micro-batches does not depend on W.
struct GlobalStep {
  std::vector<MicroBatch> micro_batches;  // fewer than asked for in the last step of an epoch, else never empty
  Cursor next;

  // Empty where the epoch has run out.
  std::span<const int64_t> share(int rank, int world_size, int accumulation_step) const;
  int64_t num_sequences() const;
};

// Cuts the order of each epoch into micro-batches, greedily from the front; a micro-batch never spans epochs. Those of
// a step that are cut by sequences then exchange sequences until they have about as many tokens each, for ranks wait
// for the slowest. Nothing is stored but the options, so starting at any cursor costs nothing. `offsets` (n + 1 values,
// sequence i has offsets[i + 1] - offsets[i] tokens) must outlive the plan. Thread-safe: immutable.
class BatchPlan {
 public:
  BatchPlan(std::span<const int64_t> offsets, const BatchOptions& options);

  // The micro-batch that is cut at `cursor`, which moves behind it, to the next epoch after the last one.
  MicroBatch next(Cursor& cursor) const;

  // The next optimizer step: up to `micro_batches` (ranks x accumulation steps) of them, ending with the epoch.
  GlobalStep next_step(const Cursor& cursor, int64_t micro_batches) const;

  // Optimizer steps of an epoch, the partial last one included, as in Hugging Face's Trainer. One pass over the lengths
  // if batches are cut by tokens, where the count differs between epochs; else O(1).
  int64_t steps_per_epoch(int64_t epoch, int64_t micro_batches_per_step) const;
  int64_t micro_batches_per_epoch(int64_t epoch) const;

 private:
  EpochOrder order(int64_t epoch) const;
  int64_t length(int64_t index) const;
  void balance(std::vector<MicroBatch>& batches) const;
  int64_t epoch_end() const;

  std::span<const int64_t> offsets_;
  int64_t size_;
  BatchOptions options_;
};

}  // namespace strake::data
