#pragma once

namespace strake::optim {

// Decay of the first and of the second moment of Adam and its like.
struct Betas {
  double first = 0.9;
  double second = 0.999;
};

}  // namespace strake::optim
