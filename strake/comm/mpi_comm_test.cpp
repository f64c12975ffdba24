// Run by a launcher as every rank of a job: exits with 1 if a collective gives a wrong result on this rank.
#include "strake/comm/mpi_comm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "strake/core/error.h"

namespace {

using strake::comm::Comm;
using strake::comm::Fold;
using strake::tensors::ShardLayout;
using strake::tensors::TouchedChunks;

void expect(bool ok, const char* what) { strake::require(ok, strake::ErrorKind::kInternal, "wrong: {}", what); }

void check_sums(Comm& comm) {
  for (const int64_t length : {3, 40000}) {
    at::Tensor values = at::full({length}, comm.rank() == 0 ? 1e8F : 1.0F);
    comm.all_reduce(values);
    float expected = 1e8F;
    for (int rank = 1; rank < comm.size(); ++rank) expected += 1.0F;
    expect(values.equal(at::full({length}, expected)), "all_reduce");
    at::Tensor places = at::zeros({length}, at::kDouble);
    places[length - 1 - comm.rank()] = 1.0 / 3;
    comm.all_reduce(places);
    expect(places.narrow(0, length - comm.size(), comm.size()).equal(at::full({comm.size()}, 1.0 / 3, at::kDouble)),
           "all_reduce of fp64");
  }
  constexpr int64_t kLength = 3'000'000;  // several chunks
  const ShardLayout layout(kLength, comm.size());
  const int n = comm.size();
  const at::Tensor full = (at::arange(kLength) % 64 + static_cast<double>(comm.rank())).to(at::kFloat);
  at::Tensor shard = at::full({layout.size(comm.rank())}, 5.0F);
  comm.reduce_scatter(full, n, layout, shard, Fold::kAdd);
  const at::Tensor mine = (at::arange(layout.begin(comm.rank()), layout.end(comm.rank())) % 64).to(at::kFloat);
  expect(shard.equal(mine * n + n * (n - 1) / 2.0 + 5), "reduce_scatter");
  comm.reduce_scatter(comm.rank() == 0 ? full : at::empty({0}), 1, layout, shard, Fold::kOverwrite);
  expect(shard.equal(mine), "reduce_scatter of one contributor");
  const at::Tensor half = at::full({kLength}, comm.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);  // bf16 has no 257
  comm.reduce_scatter(half, n, layout, shard, Fold::kOverwrite);
  expect(shard.equal(at::full_like(shard, 255.0 + n)), "reduce_scatter of bf16");
  comm.reduce_scatter(comm.rank() == 0 ? half : at::empty({0}, at::kBFloat16), 1, layout, shard, Fold::kOverwrite);
  expect(shard.equal(at::full_like(shard, 256.0)), "reduce_scatter of one contributor's bf16");
}

// What a rank did not touch of a large buffer is neither sent nor read: it may be anything.
void check_touched(Comm& comm) {
  constexpr int64_t kChunk = TouchedChunks::kChunk;
  constexpr int64_t kLength = 3000 * kChunk + 5;  // several windows
  const ShardLayout layout(kLength, comm.size());
  const auto touches = [](int rank, int64_t chunk) { return chunk % 7 == rank || (chunk > 1200 && chunk < 1300); };
  at::Tensor full = at::full({kLength}, std::nanf(""));
  at::Tensor expected = at::zeros({kLength});
  TouchedChunks touched = TouchedChunks::none(kLength);
  for (int64_t begin = 0; begin < kLength; begin += kChunk) {
    const int64_t count = std::min(kChunk, kLength - begin);
    for (int rank = 0; rank < comm.size(); ++rank) {
      if (!touches(rank, begin / kChunk)) continue;
      const at::Tensor values = at::arange(count).to(at::kFloat) + static_cast<double>(begin % 997 + rank);
      expected.narrow(0, begin, count).add_(values);
      if (rank != comm.rank()) continue;
      full.narrow(0, begin, count).copy_(values);
      touched.add(begin, begin + 1);
    }
  }
  expected = expected.narrow(0, layout.begin(comm.rank()), layout.size(comm.rank()));
  at::Tensor shard = at::full_like(expected, 5.0F);
  comm.reduce_scatter({full, touched}, comm.size(), layout, shard, Fold::kOverwrite);
  expect(shard.equal(expected), "reduce_scatter of what is touched");
  comm.reduce_scatter({full, touched}, comm.size(), layout, shard, Fold::kAdd);
  expect(shard.equal(expected * 2), "reduce_scatter of what is touched onto a sum");
  const at::Tensor ones = at::full({kLength}, 1.0F);
  comm.reduce_scatter({comm.rank() == 0 ? ones : at::empty({0}), TouchedChunks()}, 1, layout, shard, Fold::kOverwrite);
  expect(shard.equal(at::full_like(shard, 1.0F)), "reduce_scatter of one contributor of whom nothing is known");
}

// This program's ranks are processes of one host.
void check_shared_memory(Comm& comm) {
  expect(comm.shares_memory(), "shares_memory");
  constexpr int64_t kLength = 100'003;
  const ShardLayout layout(kLength, comm.size());
  at::Tensor common = comm.share_zeros(kLength, at::kBFloat16);
  expect(common.equal(at::zeros_like(common)), "share_zeros");
  comm.barrier();
  common.narrow(0, layout.begin(comm.rank()), layout.size(comm.rank())).fill_(comm.rank() + 1.0);
  comm.barrier();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const at::Tensor piece = common.narrow(0, layout.begin(rank), layout.size(rank));
    expect(piece.equal(at::full_like(piece, rank + 1.0)), "memory in common");
  }
  expect(comm.share_zeros(0, at::kFloat).numel() == 0, "share_zeros of nothing");
}

// Lowers a limit of this process for a while.
class LowLimit {
 public:
  using Limit = decltype(RLIMIT_FSIZE);
  LowLimit(Limit of, rlim_t most) : of_(of) {
    ::getrlimit(of_, &before_);
    const rlimit low{most, before_.rlim_max};
    ::setrlimit(of_, &low);
  }
  ~LowLimit() { ::setrlimit(of_, &before_); }
  LowLimit(const LowLimit&) = delete;
  LowLimit& operator=(const LowLimit&) = delete;

 private:
  Limit of_;
  rlimit before_{};
};

// Every rank hears why, whichever it is that cannot.
void check_missing_memory(Comm& comm) {
  const auto failure = [&comm] {
    try {
      comm.share_zeros(10'000'000, at::kFloat);
    } catch (const strake::Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  std::signal(SIGXFSZ, SIG_IGN);
  {
    std::optional<LowLimit> low;
    if (comm.rank() == 0) low.emplace(RLIMIT_FSIZE, 1000);
    expect(failure().find("cannot have 40000000 bytes of memory in common with the other ranks: File too large") == 0,
           "share_zeros where rank 0 cannot");
  }
  const int last = comm.size() - 1;
  if (last == 0) return;
  std::optional<LowLimit> low;
  if (comm.rank() == last) low.emplace(RLIMIT_NOFILE, 3);
  const std::string told = failure();
  expect(told.starts_with(fmt::format("rank {}: ", last)) && told.ends_with("Too many open files"),
         "share_zeros where the last rank cannot");
}

void check_moves(Comm& comm) {
  constexpr int64_t kLength = 100'000;
  const ShardLayout layout(kLength, comm.size());
  at::Tensor full = at::zeros({kLength});
  const int64_t begin = layout.begin(comm.rank());
  full.narrow(0, begin, layout.size(comm.rank())).copy_(at::arange(begin, layout.end(comm.rank())));
  comm.all_gather(full, layout);
  expect(full.equal(at::arange(kLength).to(at::kFloat)), "all_gather");
  at::Tensor values = at::full({3}, static_cast<double>(comm.rank()));
  comm.broadcast(values, comm.size() - 1);
  expect(values[2].item<float>() == static_cast<float>(comm.size() - 1), "broadcast");
  if (comm.rank() > 0) comm.send(at::full({2}, 10.0 + comm.rank()), 0);
  for (int source = 1; comm.rank() == 0 && source < comm.size(); ++source) {
    at::Tensor received = at::zeros({2});
    comm.recv(received, source);
    expect(received[1].item<float>() == 10.0F + static_cast<float>(source), "send and recv");
  }
  comm.barrier();
}

}  // namespace

int main() {
  try {
    auto environment = strake::comm::detect_rank_environment();
    strake::require(environment.has_value(), strake::ErrorKind::kUsage, "start this program with mpirun");
    const auto comm = strake::comm::make_mpi_comm(*environment);
    check_sums(*comm);
    check_touched(*comm);
    check_shared_memory(*comm);
    check_missing_memory(*comm);
    check_moves(*comm);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
