#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strake/models/model.h"
#include "strake/tensors/flat_layout.h"

namespace strake::training {

// Parameters of one block that are stored, spread over ranks and moved together, in one flat buffer: all trained or all
// frozen. A block has one unit, or two if it mixes them (as an adapter's does), so that nothing is paid for the
// gradient and optimizer state of a frozen parameter. FSDP2 makes the same difference parameter by parameter.
struct Unit {
  size_t block = 0;
  models::Trained trained = models::Trained::kYes;
  tensors::FlatLayout layout;
  std::vector<size_t> parameters;  // in Block::parameters(), in the order of layout.entries()

  bool is_frozen() const { return trained == models::Trained::kNo; }
};

// The units of a model in the order of its blocks, the trained one of a block first. What is trained must not change
// afterwards.
class Units {
 public:
  explicit Units(const models::Model& model);

  size_t size() const { return units_.size(); }
  const Unit& operator[](size_t u) const { return units_[u]; }
  auto begin() const { return units_.begin(); }
  auto end() const { return units_.end(); }

  // Numbers of a block's units.
  std::span<const size_t> of_block(size_t block) const { return by_block_[block]; }
  // Where a parameter is kept.
  struct Place {
    size_t unit = 0;
    size_t entry = 0;  // in Unit::layout
  };
  const Place& place(size_t block, size_t parameter) const { return places_[block][parameter]; }

 private:
  void add(const models::Block& block, size_t number, models::Trained trained);

  std::vector<Unit> units_;
  std::vector<std::vector<size_t>> by_block_;
  std::vector<std::vector<Place>> places_;  // by block and parameter
};

// Whether a micro-batch's gradient of a block is 0 but for the rows of its tables that the texts have: of the
// embeddings, the first block, unless a head is tied to them and trained.
bool has_sparse_gradient(const models::Model& model, size_t block);

}  // namespace strake::training
