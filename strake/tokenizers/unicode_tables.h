#pragma once

#include <cstddef>
#include <cstdint>

// Tables behind unicode.h, in the packed form that tools/make_unicode_tables.py writes.
namespace strake::tokenizers {

extern const uint32_t kClassRuns[];  // run length << 11 | CharClass bits, from U+0000 on
extern const size_t kClassRuns_size;
extern const uint32_t kDecompositions[];  // (distance from the previous code point << 3 | n), then n code points
extern const size_t kDecompositions_size;
extern const uint32_t kCombiningRanges[];  // first, last - first, canonical combining class
extern const size_t kCombiningRanges_size;
extern const int32_t kLowercaseRanges[];  // first, last, step, difference
extern const size_t kLowercaseRanges_size;

}  // namespace strake::tokenizers
