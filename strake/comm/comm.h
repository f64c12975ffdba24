#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/error.h"
#include "strake/tensors/flat_layout.h"
#include "strake/tensors/touched_chunks.h"

namespace strake::comm {

class RankWatch;

enum class Fold {
  kOverwrite,  // shard = x_0 + x_1 + ...
  kAdd         // shard = shard + x_0 + x_1 + ...
};

// How long a rank waits for others in one collective, as in Transformers, if nothing else is said.
inline constexpr std::chrono::seconds kDefaultPatience{1800};

// What a rank brings to a sum. Both must outlive the call.
struct Addend {
  Addend(const at::Tensor& all) : values(all) {}
  Addend(const at::Tensor& all, const tensors::TouchedChunks& chunks) : values(all), touched(&chunks) {}
  const at::Tensor& values;
  // Elements elsewhere are 0, and need not be read; null: nothing is known.
  const tensors::TouchedChunks* touched = nullptr;
};

// Collectives over flat buffers (1-d, contiguous tensors in host memory; NcclComm takes its GPU's too). All ranks of a
// group call the same collectives in the same order. Sums are taken element by element from rank 0 upwards, in the
// dtype of the result, so that their bits do not depend on the transport. A failure of any rank makes the others throw
// Error (kComm) instead of waiting for ever, and so does a rank that has not come when their patience is at its end.
class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // True if all ranks are threads of this process.
  virtual bool is_one_process() const = 0;

  // Every rank gets the sum. fp32, fp64 or int64.
  virtual void all_reduce(at::Tensor& values) = 0;

  // Rank r gets the sum over its shard of `full`, in `shard` of layout.size(rank()). Both are fp32, bf16 or fp16; each
  // addition is made in fp32 and rounded to the dtype of `shard`. Only ranks below `contributors` add anything; the
  // others give an empty `full` of the same dtype. All of them get their shard.
  virtual void reduce_scatter(const Addend& full, int contributors, const tensors::ShardLayout& layout,
                              at::Tensor& shard, Fold fold) = 0;

  // Each rank's own shard of `full` is in place; afterwards all shards are.
  virtual void all_gather(at::Tensor& full, const tensors::ShardLayout& layout) = 0;

  virtual void broadcast(at::Tensor& values, int root) = 0;
  virtual void send(const at::Tensor& values, int destination) = 0;
  virtual void recv(at::Tensor& values, int source) = 0;
  virtual void barrier() = 0;
  virtual std::chrono::seconds patience() const { return kDefaultPatience; }
  // Error (kComm) if another rank gave up, as far as this one has heard. Does not wait; safe from any thread.
  virtual void check_others() = 0;
  // What processes say of themselves, so that a wait can name who has not come; null where there is nothing to ask.
  virtual RankWatch* watch() { return nullptr; }

  // True if ranks can have a tensor in host memory in common: threads of one process, or processes of one host.
  virtual bool shares_memory() const { return is_one_process(); }
  // A tensor of `numel` zeros that is the same memory for all ranks; kInternal unless shares_memory(), kIo if there is
  // not enough of it. Nobody keeps the ranks from writing to it at once but themselves. Collective.
  virtual at::Tensor share_zeros(int64_t numel, at::ScalarType dtype);

  // What rank 0's `make` returns, for all ranks; kInternal unless is_one_process(). Collective.
  virtual std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) = 0;
  template <typename T, typename... Arguments>
  std::shared_ptr<T> share(const Arguments&... arguments) {
    return std::static_pointer_cast<T>(share_made([&] { return std::make_shared<T>(arguments...); }));
  }

  // The ranks that give the same color, as a group of its own, in the order they have here. Collective. A group's
  // collectives throw when any rank of this group aborts.
  virtual std::unique_ptr<Comm> split(int color) = 0;

  // Makes every other rank's present or next collective throw, with this rank's number and `reason`. Called once, by a
  // rank that gives up. Ends ranks that are processes, with the exit code of `kind`; Error if another's end came first.
  virtual void abort(ErrorKind kind, const std::string& reason) = 0;
};

// One rank: every collective is the identity.
class SelfComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool is_one_process() const override { return true; }
  void all_reduce(at::Tensor&) override {}
  void reduce_scatter(const Addend& full, int contributors, const tensors::ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override;
  void all_gather(at::Tensor&, const tensors::ShardLayout&) override {}
  void broadcast(at::Tensor&, int) override {}
  void send(const at::Tensor&, int) override;
  void recv(at::Tensor&, int) override;
  void barrier() override {}
  void check_others() override {}
  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) override { return make(); }
  std::unique_ptr<Comm> split(int) override { return std::make_unique<SelfComm>(); }
  void abort(ErrorKind, const std::string&) override {}
};

// Element [r * values.size() + i] of the result is values[i] of rank r. For a few numbers, such as losses and counts.
std::vector<double> all_gather_values(Comm& comm, const std::vector<double>& values);

// That of `root`, on all ranks.
std::string broadcast_text(Comm& comm, const std::string& own, int root);

// Runs what does not communicate, and gives what it throws on the first rank where it does, in the same words on all
// ranks; none where nothing is thrown. Collective.
std::optional<Error> first_error(Comm& comm, const std::function<void()>& step);
// The same, thrown.
void together(Comm& comm, const std::function<void()>& step);

// shard (+)= piece, converting to the shard's dtype.
void fold_piece(const at::Tensor& piece, at::Tensor& shard, Fold fold);

// A part of a buffer that is summed, which its rank holds in `sum`.
struct SummedPart {
  int64_t begin = 0;  // of its elements in the buffer
  at::Tensor sum;
};
// Elements that stay in a core's cache from the first to the last addend.
inline constexpr int64_t kCachedElements = int64_t{1} << 16;

// What contributor c brings of elements [begin, begin + count) of the buffer; asked in order of `begin`, and only for
// what c touched.
using PieceOf = std::function<at::Tensor(int c, int64_t begin, int64_t count)>;

// sum (+)= the pieces from contributor 0 upwards. `touched` by contributor; null, or nothing known: all of it. What
// every transport's reduce_scatter ends in.
void fold_pieces(const std::vector<const tensors::TouchedChunks*>& touched, const PieceOf& piece_of, SummedPart& part,
                 Fold fold);

}  // namespace strake::comm
