#pragma once

#include <cstdint>
#include <ctime>

namespace strake {

// A time of stat(2), in nanoseconds since 1970.
inline int64_t nanoseconds(const struct timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

}  // namespace strake
