#include "strake/kernels/embedding.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/embedding_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<EmbeddingRung<float>, 3> kLadder<float>{&avx512::kEmbeddingFloat, &avx2::kEmbeddingFloat,
                                                         &reference::kEmbeddingFloat};
template <>
constexpr Ladder<EmbeddingRung<BFloat16>, 3> kLadder<BFloat16>{&avx512::kEmbeddingBFloat16, &avx2::kEmbeddingBFloat16,
                                                               &reference::kEmbeddingBFloat16};
template <>
constexpr Ladder<EmbeddingRung<Half>, 3> kLadder<Half>{&avx512::kEmbeddingHalf, &avx2::kEmbeddingHalf,
                                                       &reference::kEmbeddingHalf};

template <typename T>
void check_ids(const EmbeddingTable<T>& table, int64_t tokens, const char* name) {
  if (table.table == nullptr) return;
  for (int64_t t = 0; t < tokens; ++t) {
    require(table.ids[t] >= 0 && table.ids[t] < table.rows, ErrorKind::kData,
            "{} id {} of token {} is outside its embedding table of {} rows", name, table.ids[t], t, table.rows);
  }
}

constexpr int64_t kGrain = 8;         // tokens
constexpr int64_t kColumnGrain = 64;  // a cache line of BFloat16 holds 32

}  // namespace

template <typename T>
void embedding_forward(const EmbeddingForward<T>& args, Isa highest) {
  require(args.word.table != nullptr, ErrorKind::kInternal, "embedding without a word table");
  check_ids(args.word, args.tokens, "token");
  check_ids(args.position, args.tokens, "position");
  check_ids(args.type, args.tokens, "token type");
  const EmbeddingRung<T>& rung = pick(kLadder<T>, highest);
  parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) { rung.forward(args, begin, end); });
}

// Threads share out the columns, not the rows: tables as short as the token types would keep one thread busy.
template <typename T>
void embedding_backward(const EmbeddingBackward<T>& args, Isa highest) {
  check_ids(args.table, args.tokens, "embedding");
  const EmbeddingRung<T>& rung = pick(kLadder<T>, highest);
  const int32_t* const ids = args.table.ids;
  std::vector<int32_t> order(static_cast<size_t>(args.tokens));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [ids](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  std::vector<EmbeddingRun> runs;
  for (const int32_t& token : order) {
    if (runs.empty() || runs.back().row != ids[token]) runs.push_back({ids[token], &token, 0});
    ++runs.back().count;
  }
  parallel_for(args.columns, kColumnGrain, [&](int64_t begin, int64_t end) {
    for (const EmbeddingRun& run : runs) rung.add(args, run, begin, end);
  });
}

template void embedding_forward(const EmbeddingForward<float>&, Isa);
template void embedding_forward(const EmbeddingForward<BFloat16>&, Isa);
template void embedding_forward(const EmbeddingForward<Half>&, Isa);
template void embedding_backward(const EmbeddingBackward<float>&, Isa);
template void embedding_backward(const EmbeddingBackward<BFloat16>&, Isa);
template void embedding_backward(const EmbeddingBackward<Half>&, Isa);

}  // namespace strake::kernels
