#pragma once

#include <cstdint>

// Vector bodies are templates over a type S (Avx2, Avx512) and live in an anonymous namespace: each instruction set's
// source file gets its own copy, and no copy can end up in a program path for another processor.
namespace strake::kernels {
namespace {

struct Full {};  // all lanes of a vector
struct Part {    // the first n lanes
  int n;
};

// Calls f(i, Full) for every whole vector in [0, count) and f(i, Part) for the rest.
template <class S, class F>
[[gnu::always_inline]] inline void for_each_vector(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + S::kLanes <= count; i += S::kLanes) f(i, Full{});
  if (i < count) f(i, Part{static_cast<int>(count - i)});
}

// The same, with two whole vectors at a time as two(i): chains of sums that do not wait for each other.
template <class S, class Two, class F>
[[gnu::always_inline]] inline void for_each_two_vectors(int64_t count, Two&& two, F&& f) {
  int64_t i = 0;
  for (; i + 2 * S::kLanes <= count; i += 2 * S::kLanes) two(i);
  for_each_vector<S>(count - i, [&](int64_t j, auto lanes) { f(i + j, lanes); });
}

inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace
}  // namespace strake::kernels
