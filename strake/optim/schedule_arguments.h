#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/optim/learning_rate.h"

namespace strake::optim {

// The arguments of one schedule, read with errors that name where they are from and the schedule. Null is as if left
// out.
class Arguments {
 public:
  explicit Arguments(const ScheduleOptions& options)
      : kwargs_(options.kwargs), source_(options.kwargs_source + " of schedule '" + options.type + "'") {}

  double at_least_zero(const char* key, double fallback) const {
    const double value = get_or<double>(kwargs_, key, fallback, source_);
    require(value >= 0 && std::isfinite(value), ErrorKind::kConfig, "{}: {}={} must be a number from 0 on", source_,
            key, value);
    return value;
  }
  std::optional<double> optional_number(const char* key) const {
    if (!has(key)) return std::nullopt;
    return at_least_zero(key, 0);
  }
  std::optional<int64_t> optional_count(const char* key) const {
    if (!has(key)) return std::nullopt;
    const auto value = get_required<int64_t>(kwargs_, key, source_);
    require(value >= 0, ErrorKind::kConfig, "{}: {}={} must be 0 or more", source_, key, value);
    constexpr int64_t kMost = 1'000'000'000'000'000;  // sums of such counts do not overflow
    require(value <= kMost, ErrorKind::kConfig, "{}: {}={} is more than {}", source_, key, value, kMost);
    return value;
  }
  std::string choice(const char* key, const std::string& fallback, std::span<const std::string> choices) const {
    std::string value = get_or<std::string>(kwargs_, key, fallback, source_);
    require(std::ranges::find(choices, value) != choices.end(), ErrorKind::kConfig, "{}: {}='{}' is not one of: {}",
            source_, key, printable(value), fmt::join(choices, ", "));
    return value;
  }
  bool boolean(const char* key, bool fallback) const { return get_or<bool>(kwargs_, key, fallback, source_); }
  void require_key(const char* key) const { require(has(key), ErrorKind::kConfig, "{}: {} is needed", source_, key); }
  const std::string& source() const { return source_; }

 private:
  bool has(const char* key) const { return kwargs_.contains(key) && !kwargs_.at(key).is_null(); }

  const Json& kwargs_;
  std::string source_;
};

}  // namespace strake::optim
