#include "strake/training/units.h"

#include <algorithm>

namespace strake::training {

Units::Units(const models::Model& model) : by_block_(model.blocks().size()) {
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    places_.emplace_back(model.blocks()[i]->parameters().size());
    add(*model.blocks()[i], i, models::Trained::kYes);
    add(*model.blocks()[i], i, models::Trained::kNo);
  }
}

void Units::add(const models::Block& block, size_t number, models::Trained trained) {
  Unit unit{.block = number, .trained = trained, .layout = {}, .parameters = {}};
  for (size_t p = 0; p < block.parameters().size(); ++p) {
    const models::ParameterSpec& spec = block.parameters()[p];
    if (spec.trained != trained) continue;
    places_[number][p] = {.unit = units_.size(), .entry = unit.parameters.size()};
    unit.layout.add(spec.name, spec.shape);
    unit.parameters.push_back(p);
  }
  if (unit.parameters.empty()) return;
  by_block_[number].push_back(units_.size());
  units_.push_back(std::move(unit));
}

bool has_sparse_gradient(const models::Model& model, size_t block) {
  if (block > 0) return false;
  const auto adds_all_of_it = [](const models::TiedParameter& tied) {
    return tied.block == 0 && tied.trained == models::Trained::kYes;
  };
  return std::ranges::none_of(model.blocks(),
                              [&](const auto& other) { return std::ranges::any_of(other->tied(), adds_all_of_it); });
}

}  // namespace strake::training
