#pragma once

#include <cstdint>

#include "strake/core/philox.h"

namespace strake::data {

enum class Shuffle { kOff, kOn };

// The order in which one epoch visits n sequences: a permutation of [0, n) that is a pure function of (n, seed, epoch),
// with O(1) access to every position, so that nothing is stored and any position can be resumed at.
// A Feistel network on the smallest power of two >= n whose round function is Philox; values >= n are encrypted again
// until they fall below n ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
// Thread-safe: immutable.
class EpochOrder {
 public:
  EpochOrder(int64_t n, uint64_t seed, int64_t epoch, Shuffle shuffle);

  int64_t size() const { return n_; }
  // Index of the sequence at `position` in [0, n).
  int64_t at(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  int64_t n_;
  PhiloxKey key_;
  Shuffle shuffle_;
  int low_bits_ = 0;
  int high_bits_ = 0;
  uint32_t rounds_ = 0;
};

}  // namespace strake::data
