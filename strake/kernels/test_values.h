#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "strake/core/philox.h"
#include "strake/core/threads.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/half.h"
#include "strake/kernels/ladder.h"

// What the tests of this module share: reproducible values, comparison with a stated tolerance, thread counts.
namespace strake::kernels {

using StorageTypes = ::testing::Types<float, BFloat16, Half>;

// Relative rounding error of one store, of a normal number.
template <typename T>
constexpr int mantissa_bits() {
  if (std::is_same_v<T, float>) return 24;
  return std::is_same_v<T, Half> ? 11 : 8;
}
template <typename T>
constexpr double kRounding = 1.0 / (1 << mantissa_bits<T>());

template <typename T>
std::vector<T> random_values(int64_t count, uint64_t seed, float scale = 1.0F) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = from_float<T>(scale * philox_normal_pair(philox_key(seed, 0), i)[0]);
  }
  return values;
}

template <typename T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const T& value : values) result.push_back(to_float(value));
  return result;
}

// |got - want| <= absolute + relative |want| for every element; the first few that are not are shown.
template <typename T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double absolute, double relative,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  int shown = 0;
  for (size_t i = 0; i < got.size() && shown < 3; ++i) {
    const double value = to_float(got[i]);
    if (std::abs(value - want[i]) <= absolute + relative * std::abs(want[i])) continue;
    ADD_FAILURE() << what << ": element " << i << " is " << value << ", expected " << want[i];
    ++shown;
  }
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Sets the number of threads for a scope.
class WithThreads {
 public:
  explicit WithThreads(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~WithThreads() { set_num_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

// Those of usable_rungs(), and of the levels that only some kernels have rungs for.
inline std::vector<Isa> usable_rungs_and(std::initializer_list<Isa> more) {
  std::vector<Isa> levels = usable_rungs();
  for (const Isa isa : more) {
    if (usable(isa)) levels.push_back(isa);
  }
  return levels;
}

// Rows and positions of a packed batch: rows beyond 32 bits, positions counted in each sequence.
struct TestIndex {
  std::vector<int64_t> rows;
  std::vector<int32_t> positions;

  explicit TestIndex(const std::vector<int32_t>& lengths) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t t = 0; t < lengths[s]; ++t) {
        rows.push_back((int64_t{5} << 32) + static_cast<int64_t>(1000 * s));
        positions.push_back(t);
      }
    }
  }
  TokenIndex index() const { return {rows.data(), positions.data()}; }
};

}  // namespace strake::kernels
