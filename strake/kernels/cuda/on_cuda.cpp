#include "strake/kernels/cuda/on_cuda.h"

#include <type_traits>

#include "strake/core/error.h"
#include "strake/kernels/cuda/call.h"
#include "strake/kernels/keep_rule.h"

namespace strake::kernels {
namespace {

template <typename T>
const cuda::TypedTable<T>& typed(const OnCuda& place) {
  if constexpr (std::is_same_v<T, float>) {
    return place.table->fp32;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return place.table->bf16;
  } else {
    return place.table->fp16;
  }
}

void check(const OnCuda& place, int error, const char* what) { cuda::check(*place.table, error, what); }

// An id outside [0, rows).
struct OutsideId {
  int64_t place;  // -1: there is none
  int32_t id;
};

OutsideId first_outside(const HostIds& ids, int64_t rows) {
  for (int64_t i = 0; i < ids.count; ++i) {
    if (ids.ids[i] < 0 || ids.ids[i] >= rows) return {i, ids.ids[i]};
  }
  return {-1, 0};
}

OutsideId first_outside(const OnCuda& place, const int32_t* ids, int64_t count, int64_t rows) {
  OutsideId outside{-1, 0};
  check(place, place.table->first_outside(ids, count, rows, &outside.place, &outside.id, place.stream), "checking ids");
  return outside;
}

template <typename T>
void check_table(const OnCuda& place, const EmbeddingTable<const T>& table, int64_t tokens, const char* name) {
  if (table.table == nullptr) return;
  const OutsideId outside = table.on_host.ids != nullptr ? first_outside(table.on_host, table.rows)
                                                         : first_outside(place, table.ids, tokens, table.rows);
  require(outside.place < 0, ErrorKind::kData, "{} id {} of token {} is outside its embedding table of {} rows", name,
          outside.id, outside.place, table.rows);
}

void check_shape(const AttentionShape& shape) {
  require(
      shape.num_sequences >= 0 && shape.num_heads > 0 && shape.head_dim > 0 && shape.num_tokens >= 0 && shape.scale > 0,
      ErrorKind::kInternal, "attention over {} sequences, {} tokens, {} heads of {}, scale {}", shape.num_sequences,
      shape.num_tokens, shape.num_heads, shape.head_dim, shape.scale);
  require_attention_heads(shape.num_heads, shape.head_dim);
  // The longest sequence is known by its bits, where those are kept.
  const int64_t keys = shape.kept != nullptr ? 8 * shape.kept_bytes : shape.num_tokens;
  require(shape.dropout.p == 0 || (keys <= kMaxAttentionKeysWithDropout && shape.num_heads <= 4096),
          ErrorKind::kInternal, "attention dropout over {} keys and {} heads: at most 2^20 and 4096", keys,
          shape.num_heads);
  keep_rule(shape.dropout, shape.index);  // checks it
}

}  // namespace

void require_attention_heads(int64_t num_heads, int64_t head_dim) {
  require(num_heads <= cuda::kMostHeads, ErrorKind::kConfig, "attention of {} heads: on GPUs at most {}", num_heads,
          cuda::kMostHeads);
  require(head_dim <= cuda::kMaxHeadDim, ErrorKind::kConfig,
          "attention heads of {} numbers: on GPUs at most {} are there yet", head_dim, cuda::kMaxHeadDim);
}

template <typename T>
void embedding_forward(const EmbeddingForward<T>& args, const OnCuda& place) {
  require(args.word.table != nullptr, ErrorKind::kInternal, "embedding without a word table");
  check_table(place, args.word, args.tokens, "token");
  check_table(place, args.position, args.tokens, "position");
  check_table(place, args.type, args.tokens, "token type");
  check(place, typed<T>(place).embedding_forward(args, place.stream), "embedding");
}

template <typename T>
void embedding_backward(const EmbeddingBackward<T>& args, const OnCuda& place) {
  check(place, typed<T>(place).embedding_backward(args, place.stream), "gradient of an embedding");
}

template <typename T>
void residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, const OnCuda& place) {
  require(args.columns <= cuda::kMostNormColumns, ErrorKind::kConfig,
          "layer norm over {} numbers: on GPUs at most {} are there yet", args.columns, cuda::kMostNormColumns);
  keep_rule(args.dropout, args.index);  // checks it
  check(place, typed<T>(place).residual_layer_norm_forward(args, place.stream), "layer norm");
}

template <typename T>
void residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, const OnCuda& place) {
  const KeepRule keep = keep_rule(args.dropout, args.index);
  require(!keep.active || args.dx != args.dsum, ErrorKind::kInternal, "dx and dsum must differ when dropout is on");
  check(place, typed<T>(place).residual_layer_norm_backward(args, place.stream), "gradient of a layer norm");
}

template <typename T>
void bias_activation_forward(const BiasActivationForward<T>& args, const OnCuda& place) {
  check(place, typed<T>(place).bias_activation_forward(args, place.stream), "activation");
}

template <typename T>
void bias_activation_backward(const BiasActivationBackward<T>& args, const OnCuda& place) {
  check(place, typed<T>(place).bias_activation_backward(args, place.stream), "gradient of an activation");
}

template <typename T>
void dropout(const DropoutArgs<T>& args, const OnCuda& place) {
  keep_rule(args.dropout, args.index);
  check(place, typed<T>(place).dropout(args, place.stream), "dropout");
}

template <typename T>
void attention_forward(const AttentionForward<T>& args, const OnCuda& place) {
  check_shape(args.shape);
  check(place, typed<T>(place).attention_forward(args, args.shape.num_tokens, place.stream), "attention");
}

template <typename T>
void attention_backward(const AttentionBackward<T>& args, const OnCuda& place) {
  check_shape(args.shape);
  require(args.shape.dropout.p == 0 || args.shape.kept != nullptr, ErrorKind::kInternal,
          "gradient of attention without the forward pass's dropout bits");
  check(place, typed<T>(place).attention_backward(args, args.shape.num_tokens, place.stream), "gradient of attention");
}

template <typename T>
void cross_entropy(const CrossEntropyArgs<T>& args, const OnCuda& place) {
  const OutsideId outside = args.host_targets != nullptr
                                ? first_outside(HostIds{args.host_targets, args.tokens}, args.classes)
                                : first_outside(place, args.targets, args.tokens, args.classes);
  require(outside.place < 0, ErrorKind::kData, "target {} of token {} is not one of {} classes", outside.id,
          outside.place, args.classes);
  check(place, typed<T>(place).cross_entropy(args, place.stream), "cross entropy");
}

template <typename T>
void column_sum(const ColumnSumArgs<T>& args, const OnCuda& place) {
  check(place, typed<T>(place).column_sum(args, place.stream), "sum of columns");
}

template <typename T>
void convert(const float* from, T* to, int64_t count, const OnCuda& place) {
  check(place, typed<T>(place).from_float(from, to, count, place.stream), "conversion");
}

template <typename T>
void sum_of_squares(const T* x, int64_t count, std::span<double> partial, const OnCuda& place) {
  require(std::ssize(partial) == num_squares_chunks(count), ErrorKind::kInternal,
          "{} partial sums for {} chunks of squares", partial.size(), num_squares_chunks(count));
  check(place, typed<T>(place).sum_of_squares(x, count, partial.data(), place.stream), "sum of squares");
}

#define STRAKE_INSTANTIATE(T)                                                                     \
  template void embedding_forward(const EmbeddingForward<T>&, const OnCuda&);                     \
  template void embedding_backward(const EmbeddingBackward<T>&, const OnCuda&);                   \
  template void residual_layer_norm_forward(const ResidualLayerNormForward<T>&, const OnCuda&);   \
  template void residual_layer_norm_backward(const ResidualLayerNormBackward<T>&, const OnCuda&); \
  template void bias_activation_forward(const BiasActivationForward<T>&, const OnCuda&);          \
  template void bias_activation_backward(const BiasActivationBackward<T>&, const OnCuda&);        \
  template void dropout(const DropoutArgs<T>&, const OnCuda&);                                    \
  template void attention_forward(const AttentionForward<T>&, const OnCuda&);                     \
  template void attention_backward(const AttentionBackward<T>&, const OnCuda&);                   \
  template void cross_entropy(const CrossEntropyArgs<T>&, const OnCuda&);                         \
  template void column_sum(const ColumnSumArgs<T>&, const OnCuda&);                               \
  template void sum_of_squares(const T*, int64_t, std::span<double>, const OnCuda&);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE
template void convert(const float*, BFloat16*, int64_t, const OnCuda&);
template void convert(const float*, Half*, int64_t, const OnCuda&);

}  // namespace strake::kernels
