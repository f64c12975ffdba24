#pragma once

namespace strake::models {

// A parameter that is not trained ("frozen") keeps its value: it has no gradient, no optimizer state and no weight
// decay, and its weight gradient is never computed.
enum class Trained { kNo, kYes };

// Of a projection's or norm's two parameters.
struct TrainedAffine {
  Trained weight = Trained::kYes;
  Trained bias = Trained::kYes;

  Trained any() const { return weight == Trained::kYes ? weight : bias; }
};

}  // namespace strake::models
