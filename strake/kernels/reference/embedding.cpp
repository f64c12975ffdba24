#include "strake/kernels/embedding_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
float entry(const EmbeddingTable<const T>& table, int64_t token, int64_t columns, int64_t c) {
  return table.table == nullptr ? 0.0F : to_float(table.table[int64_t{table.ids[token]} * columns + c]);
}

template <typename T>
void forward(const EmbeddingForward<T>& args, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t c = 0; c < args.columns; ++c) {
      args.out[token * args.stride + c] =
          from_float<T>(entry(args.word, token, args.columns, c) + entry(args.position, token, args.columns, c) +
                        entry(args.type, token, args.columns, c));
    }
  }
}

template <typename T>
void add(const EmbeddingBackward<T>& args, const EmbeddingRun& run, int64_t begin, int64_t end) {
  float* const row = args.table.table + run.row * args.columns;
  for (int64_t c = begin; c < end; ++c) {
    float sum = 0;
    for (int64_t i = 0; i < run.count; ++i) sum += to_float(args.dout[int64_t{run.tokens[i]} * args.columns + c]);
    row[c] += sum;
  }
}

}  // namespace

const EmbeddingRung<float> kEmbeddingFloat{Isa::kReference, &forward<float>, &add<float>};
const EmbeddingRung<BFloat16> kEmbeddingBFloat16{Isa::kReference, &forward<BFloat16>, &add<BFloat16>};
const EmbeddingRung<Half> kEmbeddingHalf{Isa::kReference, &forward<Half>, &add<Half>};

}  // namespace strake::kernels::reference
