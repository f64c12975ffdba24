#pragma once

#include <cstdint>
#include <string>

namespace strake::monitor {

// Numbers as people read them in progress lines and closing tables.
std::string count_text(int64_t count);      // 1,234,567
std::string duration_text(double seconds);  // 0:07, 12:34, 1:02:03, 2d 3:04:05; "?" if not finite or negative
std::string scaled_text(double value);      // 950, 12.3 k, 4.57 M, 1.20 G, ... P: three digits and an SI prefix

}  // namespace strake::monitor
