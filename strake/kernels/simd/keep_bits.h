#pragma once

#include "strake/kernels/keep_rule.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// One counter per lane (see dropout.h for what its words mean).
template <class S>
struct Counters {
  typename S::Int word[4];
};

// Philox4x32-10 on S::kLanes counters at once; bit 4 * lane + k of the result: word k of that lane is kept.
template <class S>
inline uint64_t keep_bits(const KeepRule& rule, Counters<S> c) {
  const typename S::Int multiplier0 = S::set_int(kPhiloxMultiplier0);
  const typename S::Int multiplier1 = S::set_int(kPhiloxMultiplier1);
  uint32_t k0 = rule.key.k0;
  uint32_t k1 = rule.key.k1;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    typename S::Int high0, low0, high1, low1;
    S::multiply(c.word[0], multiplier0, high0, low0);
    S::multiply(c.word[2], multiplier1, high1, low1);
    c.word[0] = S::xor3(high1, c.word[1], S::set_int(k0));
    c.word[1] = low1;
    c.word[2] = S::xor3(high0, c.word[3], S::set_int(k1));
    c.word[3] = low0;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return S::at_least(c.word, rule.threshold);
}

inline uint32_t last_counter_word(const KeepRule& rule, int64_t token) {
  return rule.site | (static_cast<uint32_t>(static_cast<uint64_t>(rule.index.row[token]) >> 32) << 16);
}

// Keep bits of 4 * S::kLanes consecutive elements of a token; first_group = first element / 4.
template <class S>
inline uint64_t keep_bits(const KeepRule& rule, int64_t token, uint32_t first_group) {
  return keep_bits<S>(
      rule, {{S::add(S::set_int(first_group), S::iota()), S::set_int(static_cast<uint32_t>(rule.index.position[token])),
              S::set_int(static_cast<uint32_t>(rule.index.row[token])), S::set_int(last_counter_word(rule, token))}});
}

// for_each_vector over the columns of one token: f(i, lanes, bits) where the low bits say which lanes are kept.
template <class S, class F>
[[gnu::always_inline]] inline void for_each_kept_vector(const KeepRule& rule, int64_t token, int64_t columns, F&& f) {
  constexpr int64_t kStep = 4 * S::kLanes;
  for (int64_t start = 0; start < columns; start += kStep) {
    uint64_t bits = keep_bits<S>(rule, token, static_cast<uint32_t>(start / 4));
    const int64_t end = smaller(columns, start + kStep);
    int64_t i = start;
    for (; i + S::kLanes <= end; i += S::kLanes, bits >>= S::kLanes) f(i, Full{}, static_cast<uint32_t>(bits));
    if (i < end) f(i, Part{static_cast<int>(end - i)}, static_cast<uint32_t>(bits));
  }
}

}  // namespace
}  // namespace strake::kernels
