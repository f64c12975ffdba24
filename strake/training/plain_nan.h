#pragma once

#include <cmath>
#include <limits>

namespace strake::training {

// Not a number without the sign that a processor happens to give it, which would be read as something: "-nan".
inline double plain_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

}  // namespace strake::training
