#include "strake/models/model.h"

namespace strake::models {

int64_t Model::num_parameters() const {
  int64_t total = 0;
  for (const auto& block : blocks_) {
    for (const auto& entry : block->layout().entries()) total += entry.end - entry.begin;
  }
  return total;
}

}  // namespace strake::models
