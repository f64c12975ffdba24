#include "strake/tensors/flat_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "strake/core/error.h"

namespace strake::tensors {

void FlatLayout::add(std::string name, std::vector<int64_t> shape) {
  constexpr int64_t kAlignment = 32;
  require(std::ranges::find(entries_, name, &Entry::name) == entries_.end(), ErrorKind::kInternal,
          "tensor '{}' is in the layout already", name);
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  entries_.push_back({std::move(name), std::move(shape), numel_, numel_ + count});
  numel_ = (numel_ + count + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor FlatLayout::view(const at::Tensor& flat, const Entry& entry) {
  return flat.narrow(0, entry.begin, entry.end - entry.begin).view(entry.shape);
}

void FlatLayout::zero_gaps(const at::Tensor& flat) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t next = i + 1 < entries_.size() ? entries_[i + 1].begin : numel_;
    flat.narrow(0, entries_[i].end, next - entries_[i].end).zero_();
  }
}

ShardLayout::ShardLayout(int64_t numel, int num_shards) {
  const int64_t chunks = (numel + kAlignment - 1) / kAlignment;
  const int64_t step = (chunks + num_shards - 1) / num_shards * kAlignment;
  for (int shard = 0; shard < num_shards; ++shard) {
    pieces_.push_back({std::min(numel, shard * step), std::min(numel, (shard + 1) * step)});
  }
}

}  // namespace strake::tensors
