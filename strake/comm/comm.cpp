#include "strake/comm/comm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strake/core/error.h"
#include "strake/tensors/foreign_error.h"

namespace strake::comm {
namespace {

void add_up(const std::vector<at::Tensor>& pieces, at::Tensor& sum, Fold fold) {
  if (pieces.empty()) {
    if (fold == Fold::kOverwrite) sum.zero_();
    return;
  }
  const bool is_fp32 = sum.scalar_type() == at::kFloat && pieces[0].scalar_type() == at::kFloat;
  size_t next = 0;
  if (fold == Fold::kOverwrite && pieces.size() > 1 && is_fp32) {  // the first two at once: one pass less
    at::add_out(sum, pieces[0], pieces[1]);
    next = 2;
  }
  for (size_t i = next; i < pieces.size(); ++i) fold_piece(pieces[i], sum, i == 0 ? fold : Fold::kAdd);
}

}  // namespace

at::Tensor Comm::share_zeros(int64_t numel, at::ScalarType dtype) {
  return *std::static_pointer_cast<at::Tensor>(
      share_made([&] { return std::make_shared<at::Tensor>(at::zeros({numel}, dtype)); }));
}

void SelfComm::reduce_scatter(const Addend& full, int /*contributors*/, const tensors::ShardLayout&, at::Tensor& shard,
                              Fold fold) {
  if (full.values.scalar_type() == shard.scalar_type()) return fold_piece(full.values, shard, fold);
  // In pieces: a sum of two types makes converted copies of what it adds.
  SummedPart part{.begin = 0, .sum = shard};
  const auto piece_of = [&](int, int64_t begin, int64_t count) { return full.values.narrow(0, begin, count); };
  fold_pieces({nullptr}, piece_of, part, fold);
}

void SelfComm::send(const at::Tensor&, int destination) {
  fail(ErrorKind::kInternal, "one rank alone cannot send to rank {}", destination);
}

void SelfComm::recv(at::Tensor&, int source) {
  fail(ErrorKind::kInternal, "one rank alone cannot receive from rank {}", source);
}

std::vector<double> all_gather_values(Comm& comm, const std::vector<double>& values) {
  const auto count = static_cast<int64_t>(values.size());
  at::Tensor slots = at::zeros({comm.size() * count}, at::kDouble);
  auto* data = slots.mutable_data_ptr<double>();
  std::copy(values.begin(), values.end(), data + comm.rank() * count);
  comm.all_reduce(slots);  // exact: all but one addend of each slot are zero
  return {data, data + slots.numel()};
}

std::string broadcast_text(Comm& comm, const std::string& own, int root) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  comm.broadcast(length, root);
  at::Tensor letters = at::empty({*length.const_data_ptr<int64_t>()}, at::kInt);
  auto* values = letters.mutable_data_ptr<int32_t>();
  if (comm.rank() == root) std::ranges::copy(own, values);
  if (letters.numel() > 0) comm.broadcast(letters, root);
  return {values, values + letters.numel()};
}

std::optional<Error> first_error(Comm& comm, const std::function<void()>& step) {
  std::optional<Error> own;
  try {
    step();
  } catch (...) {
    own = tensors::as_error(std::current_exception());
  }
  const std::string text = own ? own->what() : "";
  const auto kind = own ? static_cast<double>(own->kind()) : 0;
  const std::vector<double> told = all_gather_values(comm, {own ? 1.0 : 0.0, kind});
  for (int rank = 0; rank < comm.size(); ++rank) {
    const double* const of_rank = &told[2 * static_cast<size_t>(rank)];
    if (of_rank[0] == 0) continue;
    const std::string words = broadcast_text(comm, text, rank);
    return Error(static_cast<ErrorKind>(static_cast<int>(of_rank[1])),
                 rank == 0 ? words : fmt::format("rank {}: {}", rank, words));
  }
  return std::nullopt;
}

void together(Comm& comm, const std::function<void()>& step) {
  if (const std::optional<Error> first = first_error(comm, step)) throw Error(*first);
}

void fold_piece(const at::Tensor& piece, at::Tensor& shard, Fold fold) {
  if (fold == Fold::kOverwrite) {
    shard.copy_(piece);
  } else {
    shard.add_(piece);
  }
}

void fold_pieces(const std::vector<const tensors::TouchedChunks*>& touched, const PieceOf& piece_of, SummedPart& part,
                 Fold fold) {
  const int64_t most = part.sum.is_cpu() ? kCachedElements : part.sum.numel();  // a GPU adds all at once
  const auto has = [&](size_t c, int64_t element) { return touched[c] == nullptr || touched[c]->has(element); };
  const auto is_same = [&](int64_t first, int64_t next) {
    for (size_t c = 0; c < touched.size(); ++c) {
      if (has(c, first) != has(c, next)) return false;
    }
    return true;
  };
  tensors::for_each_alike(part.begin, part.begin + part.sum.numel(), is_same, [&](int64_t begin, int64_t end) {
    for (int64_t from = begin; from < end; from += most) {
      const int64_t count = std::min(most, end - from);
      std::vector<at::Tensor> pieces;
      for (size_t c = 0; c < touched.size(); ++c) {
        if (has(c, from)) pieces.push_back(piece_of(static_cast<int>(c), from, count));
      }
      at::Tensor sum = part.sum.narrow(0, from - part.begin, count);
      add_up(pieces, sum, fold);
    }
  });
}

}  // namespace strake::comm
