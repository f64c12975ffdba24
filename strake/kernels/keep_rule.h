#pragma once

#include "strake/kernels/dropout.h"

namespace strake::kernels {

// A Dropout in the form that inner loops use, with the tokens it applies to.
struct KeepRule {
  PhiloxKey key;
  uint32_t site;
  uint32_t threshold;
  float scale;  // 1 / (1 - p)
  bool active;
  TokenIndex index;
};

// Error (kInternal) if p, the site or the index make no sense.
KeepRule keep_rule(const Dropout& dropout, const TokenIndex& index);

// The definition that vector code must reproduce bit by bit.
inline bool keeps(const KeepRule& rule, int64_t token, int64_t element) {
  const auto row = static_cast<uint64_t>(rule.index.row[token]);
  const PhiloxBlock words =
      philox(rule.key, {static_cast<uint32_t>(element / 4), static_cast<uint32_t>(rule.index.position[token]),
                        static_cast<uint32_t>(row), rule.site | (static_cast<uint32_t>(row >> 32) << 16)});
  return words[static_cast<size_t>(element % 4)] >= rule.threshold;
}

// Factor for one element: 0 or 1 / (1 - p).
inline float keep_factor(const KeepRule& rule, int64_t token, int64_t element) {
  if (!rule.active) return 1.0F;
  return keeps(rule, token, element) ? rule.scale : 0.0F;
}

}  // namespace strake::kernels
