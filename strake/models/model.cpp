#include "strake/models/model.h"

#include <algorithm>

namespace strake::models {

int64_t Model::num_parameters() const {
  int64_t total = 0;
  for (const auto& block : blocks_) {
    for (const auto& entry : block->layout().entries()) total += entry.end - entry.begin;
  }
  return total;
}

int64_t Model::num_trained_parameters() const {
  int64_t total = 0;
  for (const auto& block : blocks_) {
    for (size_t i = 0; i < block->parameters().size(); ++i) {
      const auto& entry = block->layout().entries()[i];
      if (block->parameters()[i].trained == Trained::kYes) total += entry.end - entry.begin;
    }
  }
  return total;
}

void Model::freeze(size_t block, size_t parameter) {
  blocks_[block]->freeze(parameter);
  for (const auto& user : blocks_) {
    for (size_t place = 0; place < user->tied().size(); ++place) {
      const TiedParameter& tied = user->tied()[place];
      if (tied.block == block && tied.parameter == parameter) user->freeze_tied(place);
    }
  }
}

size_t Model::first_trained_block() const {
  const auto found = std::ranges::find_if(blocks_, [](const auto& block) { return block->is_trained(); });
  return static_cast<size_t>(found - blocks_.begin());
}

}  // namespace strake::models
