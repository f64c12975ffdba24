#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "strake/kernels/matmul.h"

namespace strake::kernels {

// Packed weights of ranks that are threads of one process and multiply with the same ones at about the same time, each
// its own tokens: a weight is packed once for all of them. Ranks that ask for it together pack it together; one that
// comes later finds it. Thread-safe.
class PackedWeights {
 public:
  // Keeps the latest ones, `bytes` in all.
  explicit PackedWeights(int64_t bytes) : bytes_(bytes) {}

  struct Name {
    uint64_t matrix = 0;
    uint64_t version = 0;  // of its values, which must be the same for all who ask
    bool operator==(const Name&) const = default;
  };

  // Whether there is room for such weights: others would drive out all that is kept.
  template <typename T>
  bool can_keep(int64_t depth, int64_t columns) const {
    return Packing<T>({}, depth, columns).floats() * static_cast<int64_t>(sizeof(float)) <= bytes_ / 2;
  }

  // B[depth, columns], packed. Its memory stays as long as the result or a copy of it.
  template <typename T>
  PackedMatrix<T> get(const Name& name, const MatrixOperand<T>& b, int64_t depth, int64_t columns);

 private:
  struct Entry;
  std::shared_ptr<Entry> find_or_add(const Name& name, Order order, int64_t floats);

  int64_t bytes_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;  // the last one was asked for last
};

// A weight's place among those that are packed once for several ranks.
struct SharedPack {
  PackedWeights* weights = nullptr;  // null: each product packs it anew
  PackedWeights::Name name = {};
};

}  // namespace strake::kernels
