#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

// Counter-based random numbers, Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A value is a pure function of (key, counter), so results do not depend on which rank or thread asks, or in what
// order.
namespace strake {

struct PhiloxKey {
  uint32_t k0 = 0;
  uint32_t k1 = 0;
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key.k0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key.k1, static_cast<uint32_t>(product0)};
    key.k0 += kPhiloxWeyl0;
    key.k1 += kPhiloxWeyl1;
  }
  return counter;
}

// Mixes 64 bits (finalizer of splitmix64): spreads small integers such as seeds and steps over all bits.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Key of one stream of random numbers, for example (seed, optimizer step) or (seed, parameter).
constexpr PhiloxKey philox_key(uint64_t seed, uint64_t stream) {
  const uint64_t mixed = mix64(mix64(seed) ^ stream);
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

// Uniform in (0, 1), from the upper 24 bits.
constexpr float to_uniform(uint32_t bits) { return (static_cast<float>(bits >> 8) + 0.5F) * 0x1p-24F; }

// Two independent standard normal values (Box-Muller) for element pair `index` of the stream.
inline std::array<float, 2> philox_normal_pair(PhiloxKey key, uint64_t index) {
  const PhiloxBlock bits = philox(key, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0});
  const float radius = std::sqrt(-2.0F * std::log(to_uniform(bits[0])));
  const float angle = 2.0F * std::numbers::pi_v<float> * to_uniform(bits[1]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Dropout keeps an element iff its 32 random bits are at or above this, that is with probability 1 - p.
inline uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
}

}  // namespace strake
