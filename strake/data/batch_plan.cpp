#include "strake/data/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "strake/core/error.h"

namespace strake::data {

std::span<const int64_t> GlobalStep::share(int rank, int world_size, int accumulation_step) const {
  const auto number =
      static_cast<size_t>(accumulation_step) * static_cast<size_t>(world_size) + static_cast<size_t>(rank);
  return number < micro_batches.size() ? std::span<const int64_t>(micro_batches[number]) : std::span<const int64_t>();
}

int64_t GlobalStep::num_sequences() const {
  int64_t sum = 0;
  for (const MicroBatch& batch : micro_batches) sum += static_cast<int64_t>(batch.size());
  return sum;
}

BatchPlan::BatchPlan(std::span<const int64_t> offsets, const BatchOptions& options)
    : offsets_(offsets), size_(static_cast<int64_t>(offsets.size()) - 1), options_(options) {
  require(!offsets.empty(), ErrorKind::kInternal, "a batch plan needs n + 1 offsets");
  require(options.max_tokens >= 0, ErrorKind::kConfig, "max_tokens={} must not be negative", options.max_tokens);
  require(options.max_tokens > 0 || options.sequences > 0, ErrorKind::kConfig, "batch size {} must be positive",
          options.sequences);
  require(options.max_tokens == 0 || options.last == LastBatch::kKeep, ErrorKind::kConfig,
          "--dataloader_drop_last needs batches of --per_device_train_batch_size sequences, not of "
          "--max_tokens_per_batch {}",
          options.max_tokens);
  require(epoch_end() > 0, ErrorKind::kData, "no batch can be made from {} sequences with batch size {}{}", size_,
          options.sequences, options.last == LastBatch::kDrop ? " when the last incomplete batch is dropped" : "");
}

EpochOrder BatchPlan::order(int64_t epoch) const { return {size_, options_.seed, epoch, options_.shuffle}; }

int64_t BatchPlan::length(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return offsets_[i + 1] - offsets_[i];
}

int64_t BatchPlan::epoch_end() const {
  return options_.last == LastBatch::kDrop ? size_ / options_.sequences * options_.sequences : size_;
}

MicroBatch BatchPlan::next(Cursor& cursor) const {
  require(cursor.epoch >= 0 && cursor.position >= 0 && cursor.position < epoch_end(), ErrorKind::kConfig,
          "cannot continue at epoch {}, sequence {}: an epoch of this dataset has {} sequences", cursor.epoch,
          cursor.position, epoch_end());
  const EpochOrder epoch_order = order(cursor.epoch);
  const int64_t most = options_.max_tokens > 0 ? size_ : options_.sequences;
  MicroBatch batch;
  int64_t tokens = 0;
  int64_t position = cursor.position;
  for (; position < size_ && std::ssize(batch) < most; ++position) {
    const int64_t index = epoch_order.at(position);
    tokens += length(index);
    if (options_.max_tokens > 0 && tokens > options_.max_tokens && !batch.empty()) break;
    batch.push_back(index);
  }
  cursor = position >= epoch_end() ? Cursor{cursor.epoch + 1, 0} : Cursor{cursor.epoch, position};
  return batch;
}

GlobalStep BatchPlan::next_step(const Cursor& cursor, int64_t micro_batches) const {
  require(micro_batches > 0, ErrorKind::kConfig, "a step of {} micro-batches was asked for", micro_batches);
  GlobalStep step{.micro_batches = {}, .next = cursor};
  while (static_cast<int64_t>(step.micro_batches.size()) < micro_batches && step.next.epoch == cursor.epoch) {
    step.micro_batches.push_back(next(step.next));
  }
  if (options_.max_tokens == 0) balance(step.micro_batches);
  return step;
}

// Longest processing time first (Graham 1969), with room for options_.sequences in each batch: the longest sequence
// left goes to the batch with the fewest tokens. Within a batch sequences keep the order of the epoch.
void BatchPlan::balance(std::vector<MicroBatch>& batches) const {
  if (batches.size() < 2) return;
  MicroBatch all;
  for (const MicroBatch& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  std::vector<size_t> longest_first(all.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::ranges::sort(longest_first, {}, [&](size_t i) { return std::pair(-length(all[i]), i); });

  std::vector<int64_t> room(batches.size(), options_.sequences);
  std::vector<int64_t> tokens(batches.size(), 0);
  std::vector<size_t> owner(all.size());
  for (const size_t i : longest_first) {
    size_t best = batches.size();
    for (size_t b = 0; b < batches.size(); ++b) {
      if (room[b] > 0 && (best == batches.size() || tokens[b] < tokens[best])) best = b;
    }
    owner[i] = best;
    tokens[best] += length(all[i]);
    --room[best];
  }
  for (MicroBatch& batch : batches) batch.clear();
  for (size_t i = 0; i < all.size(); ++i) batches[owner[i]].push_back(all[i]);
}

int64_t BatchPlan::micro_batches_per_epoch(int64_t epoch) const {
  if (options_.max_tokens == 0) {
    const int64_t whole = size_ / options_.sequences;
    return whole + (options_.last == LastBatch::kKeep && size_ % options_.sequences > 0 ? 1 : 0);
  }
  const EpochOrder epoch_order = order(epoch);
  int64_t count = 0;
  int64_t tokens = 0;
  for (int64_t position = 0; position < size_; ++position) {
    const int64_t added = length(epoch_order.at(position));
    const bool starts_batch = position == 0 || tokens + added > options_.max_tokens;
    tokens = starts_batch ? added : tokens + added;
    count += starts_batch ? 1 : 0;
  }
  return count;
}

int64_t BatchPlan::steps_per_epoch(int64_t epoch, int64_t micro_batches_per_step) const {
  require(micro_batches_per_step > 0, ErrorKind::kConfig, "a step of {} micro-batches was asked for",
          micro_batches_per_step);
  return (micro_batches_per_epoch(epoch) + micro_batches_per_step - 1) / micro_batches_per_step;
}

}  // namespace strake::data
