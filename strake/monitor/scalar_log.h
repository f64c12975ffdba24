#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace strake::monitor {

struct Scalar {
  std::string tag;  // "train/loss"
  double value;
};

// Where numbers of a run go, by tag and step. Error (kIo) if they cannot be written.
class ScalarLog {
 public:
  virtual ~ScalarLog() = default;
  virtual void write(std::span<const Scalar> scalars, int64_t step) = 0;
};

}  // namespace strake::monitor
