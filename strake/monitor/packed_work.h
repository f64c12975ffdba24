#pragma once

namespace strake::monitor {

// What the arithmetic of a packed batch depends on. Batches add up, so one can be kept for a whole run.
struct PackedWork {
  double tokens = 0;
  double sequences = 0;
  double squared_lengths = 0;  // sum over sequences of length squared: the size of attention's score matrices
  double targets = 0;          // what the loss is the mean of

  PackedWork& operator+=(const PackedWork& other) {
    tokens += other.tokens;
    sequences += other.sequences;
    squared_lengths += other.squared_lengths;
    targets += other.targets;
    return *this;
  }
};

}  // namespace strake::monitor
