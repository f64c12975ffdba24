#include "strake/monitor/number_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace strake::monitor {

std::string count_text(int64_t count) {
  std::string text = fmt::format("{}", count);
  const size_t first_digit = count < 0 ? 1 : 0;
  for (size_t position = text.size(); position > first_digit + 3;) {
    position -= 3;
    text.insert(position, 1, ',');
  }
  return text;
}

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e12;
  if (!(seconds >= 0 && seconds < kLongest)) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = whole / 86400;
  const int64_t hours = whole / 3600 % 24;
  const int64_t minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}d {}:{:02}:{:02}", days, hours, minutes, whole % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string scaled_text(double value) {
  constexpr std::array<const char*, 7> kPrefixes{"", " k", " M", " G", " T", " P", " E"};
  constexpr double kRoundsToNextPrefix = 999.5;
  size_t prefix = 0;
  while (std::abs(value) >= kRoundsToNextPrefix && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  if (prefix == 0) return fmt::format("{:.0f}", value);
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, kPrefixes[prefix]);
}

}  // namespace strake::monitor
