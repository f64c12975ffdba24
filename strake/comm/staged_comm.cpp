#include "strake/comm/staged_comm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

namespace strake::comm {
namespace {

using tensors::ShardLayout;
using tensors::TouchedChunks;

// Copies what is touched of elements [begin, end) to the front of `packed`; returns that.
at::Tensor pack(const at::Tensor& full, const TouchedChunks& touched, int64_t begin, int64_t end,
                const at::Tensor& packed) {
  int64_t count = 0;
  tensors::for_each_run(
      begin, end, [&](int64_t element) { return touched.has(element); },
      [&](int64_t from, int64_t to, bool is_touched) {
        if (!is_touched) return;
        packed.narrow(0, count, to - from).copy_(full.narrow(0, from, to - from));
        count += to - from;
      });
  return packed.narrow(0, 0, count);
}

int64_t longest_shard(const ShardLayout& layout) {
  int64_t longest = 0;
  for (int shard = 0; shard < layout.num_shards(); ++shard) longest = std::max(longest, layout.size(shard));
  return longest;
}

// One reduce_scatter of a rank, in windows of every shard.
class StagedSum {
 public:
  StagedSum(const Comm& comm, const at::Tensor& full, const ShardLayout& layout,
            const std::vector<TouchedChunks>& touched)
      : rank_(comm.rank()),
        full_(full),
        layout_(layout),
        touched_(touched),
        window_(staging_window(comm.size())),
        staging_(at::empty({contributors(), std::min(window_, layout.size(rank_))}, full.options())) {}

  int64_t window() const { return window_; }

  // What this rank gives of the others' windows, by rank.
  std::vector<at::Tensor> sends(int64_t begin) {
    std::vector<at::Tensor> sends(static_cast<size_t>(layout_.num_shards()));
    for (int other = 0; rank_ < contributors() && other < layout_.num_shards(); ++other) {
      const int64_t count = window_size(other, begin);
      if (other != rank_ && count > 0) sends[other] = given(other, layout_.begin(other) + begin, count);
    }
    return sends;
  }

  // Where the others' parts of this rank's window go, by rank.
  std::vector<at::Tensor> receives(int64_t begin) {
    std::vector<at::Tensor> receives(static_cast<size_t>(layout_.num_shards()));
    const int64_t first = layout_.begin(rank_) + begin;
    const int64_t count = window_size(rank_, begin);
    for (int other = 0; count > 0 && other < contributors(); ++other) {
      if (other == rank_) continue;
      receives[other] = staging_[other].narrow(0, 0, touched_[other].count(first, first + count));
    }
    return receives;
  }

  // Adds up this rank's window, when it has come.
  void fold(int64_t begin, at::Tensor& shard, Fold fold) {
    const int64_t count = window_size(rank_, begin);
    if (count <= 0) return;
    std::vector<const TouchedChunks*> touched;
    for (const TouchedChunks& chunks : touched_) touched.push_back(&chunks);
    std::vector<int64_t> taken(touched_.size());
    const auto piece_of = [&](int other, int64_t from, int64_t size) {
      if (other == rank_) return full_.narrow(0, from, size);
      return staging_[other].narrow(0, std::exchange(taken[other], taken[other] + size), size);
    };
    SummedPart part{.begin = layout_.begin(rank_) + begin, .sum = shard.narrow(0, begin, count)};
    fold_pieces(touched, piece_of, part, fold);
  }

 private:
  int contributors() const { return static_cast<int>(touched_.size()); }
  int64_t window_size(int shard, int64_t begin) const { return std::min(window_, layout_.size(shard) - begin); }
  at::Tensor given(int other, int64_t begin, int64_t count) {
    const TouchedChunks& touched = touched_[rank_];
    if (touched.count(begin, begin + count) == count) return full_.narrow(0, begin, count);
    if (!packed_.defined()) {
      packed_ = at::empty({layout_.num_shards(), std::min(window_, longest_shard(layout_))}, full_.options());
    }
    return pack(full_, touched, begin, begin + count, packed_[other]);
  }

  int rank_;
  const at::Tensor& full_;
  const ShardLayout& layout_;
  const std::vector<TouchedChunks>& touched_;
  int64_t window_;
  at::Tensor staging_;  // [contributors, a window]
  at::Tensor packed_;   // [ranks, a window]; undefined until something is sent in part
};

}  // namespace

void StagedComm::reduce_scatter(const Addend& addend, int contributors, const ShardLayout& layout, at::Tensor& shard,
                                Fold fold) {
  const std::vector<TouchedChunks> touched = exchange_touched(addend, contributors, layout);
  StagedSum sum(*this, addend.values, layout, touched);
  for (int64_t begin = 0; begin < longest_shard(layout); begin += sum.window()) {
    exchange(sum.sends(begin), sum.receives(begin));
    sum.fold(begin, shard, fold);
  }
}

std::vector<TouchedChunks> StagedComm::exchange_touched(const Addend& addend, int contributors,
                                                        const ShardLayout& layout) {
  std::vector<TouchedChunks> touched(static_cast<size_t>(contributors));  // nothing is known
  const int64_t numel = layout.numel();
  if (addend.touched == nullptr || numel < kLeastSparse || !addend.values.is_cpu()) return touched;
  constexpr int64_t kChunk = TouchedChunks::kChunk;
  std::vector<std::vector<uint8_t>> flags(touched.size(), TouchedChunks::none(numel).flags(numel));
  if (rank() < contributors) flags[rank()] = addend.touched->flags(numel);
  const auto flags_of_shard = [&](int contributor, int shard) {
    const int64_t begin = layout.begin(shard) / kChunk;
    const int64_t end = (layout.end(shard) + kChunk - 1) / kChunk;
    return at::from_blob(flags[contributor].data() + begin, {end - begin}, at::kByte);
  };
  Messages sends(static_cast<size_t>(size()));
  Messages receives(static_cast<size_t>(size()));
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    if (other < contributors) receives[other] = flags_of_shard(other, rank());
    if (rank() < contributors) sends[other] = flags_of_shard(rank(), other);
  }
  exchange(sends, receives);
  for (int c = 0; c < contributors; ++c) touched[c] = TouchedChunks(std::move(flags[c]));
  return touched;
}

void StagedComm::all_reduce_by_shards(at::Tensor& values) {
  const ShardLayout layout(values.numel(), size());
  at::Tensor shard = at::empty({layout.size(rank())}, values.options());
  reduce_scatter(values, size(), layout, shard, Fold::kOverwrite);
  values.narrow(0, layout.begin(rank()), layout.size(rank())).copy_(shard);
  all_gather(values, layout);
}

}  // namespace strake::comm
