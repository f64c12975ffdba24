#include "strake/data/epoch_order.h"

#include <bit>

#include "strake/core/error.h"

namespace strake::data {
namespace {

// Even, so that both halves change equally often. Small domains need more: over all orders of 6 items a chi-square test
// finds 12 rounds 17 standard deviations off, 16 rounds 4, and 24 within 2.
constexpr uint32_t kRoundsSmall = 24;
constexpr uint32_t kRoundsLarge = 12;
constexpr int kLargeBits = 16;

uint64_t round_function(PhiloxKey key, uint32_t round, uint64_t half) {
  const PhiloxBlock bits =
      philox(key, {static_cast<uint32_t>(half), static_cast<uint32_t>(half >> 32), round, 0x6f726472});
  return uint64_t{bits[0]} | uint64_t{bits[1]} << 32;
}

}  // namespace

EpochOrder::EpochOrder(int64_t n, uint64_t seed, int64_t epoch, Shuffle shuffle)
    : n_(n), key_(philox_key(seed, static_cast<uint64_t>(epoch))), shuffle_(shuffle) {
  require(n >= 0, ErrorKind::kInternal, "an order of {} items was asked for", n);
  const int bits = n > 1 ? static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))) : 0;
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  rounds_ = bits < kLargeBits ? kRoundsSmall : kRoundsLarge;
}

uint64_t EpochOrder::encrypt(uint64_t value) const {
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1;
  const uint64_t high_mask = (uint64_t{1} << high_bits_) - 1;
  uint64_t low = value & low_mask;
  uint64_t high = value >> low_bits_;
  for (uint32_t round = 0; round < rounds_; round += 2) {
    high ^= round_function(key_, round, low) & high_mask;
    low ^= round_function(key_, round + 1, high) & low_mask;
  }
  return high << low_bits_ | low;
}

int64_t EpochOrder::at(int64_t position) const {
  require(position >= 0 && position < n_, ErrorKind::kInternal, "position {} of an epoch of {}", position, n_);
  if (shuffle_ == Shuffle::kOff) return position;
  auto value = static_cast<uint64_t>(position);
  do {
    value = encrypt(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

}  // namespace strake::data
