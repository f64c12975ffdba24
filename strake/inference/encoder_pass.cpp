#include "strake/inference/encoder_pass.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "strake/inference/encoder_weights.h"
#include "strake/inference/pass_arena.h"
#include "strake/kernels/attention.h"
#include "strake/kernels/cache_blocks.h"
#include "strake/kernels/embedding.h"
#include "strake/kernels/int8_matmul.h"
#include "strake/kernels/residual_layer_norm.h"
#include "strake/models/encoder/embeddings.h"

namespace strake::inference {
namespace {

template <typename T>
int64_t scratch_floats(const EncoderWeights<T>& weights, const models::EncoderConfig& config,
                       const PassCapacity& capacity) {
  const auto floats = [&](const LinearWeights<T>& linear) {
    return std::max(kernels::matmul_scratch<T, T>(capacity.tokens, linear.weight),
                    kernels::matmul_scratch<T, T>(capacity.tokens, linear.weight, capacity.threads));
  };
  int64_t most = weights.head.dense ? floats(*weights.head.dense) : 0;
  if (weights.head.classifier) {
    for (const int threads : {1, capacity.threads}) {
      most =
          std::max(most, kernels::matmul_scratch<T, float>(capacity.tokens, weights.head.classifier->weight, threads));
    }
  }
  for (const LayerWeights<T>& layer : weights.layers) {
    for (const LayerLinear<T>& linear : layer.linears) {
      if (linear.plain) most = std::max(most, floats(*linear.plain));
      if (linear.quantized) {
        most = std::max(most, kernels::int8_matmul_scratch(capacity.tokens, linear.quantized->weight));
      }
    }
  }
  const int64_t head_dim = config.hidden_size / config.num_attention_heads;
  return std::max(most, kernels::attention_forward_scratch<T>(capacity.longest_sequence, head_dim));
}

template <typename T>
class TypedPass final : public EncoderPass {
 public:
  TypedPass(EncoderWeights<T> weights, const models::EncoderConfig& config, PrecisionPlan plan, Head head,
            const PassCapacity& capacity)
      : weights_(std::move(weights)),
        plan_(std::move(plan)),
        head_(std::move(head)),
        positions_(config),
        tokens_(capacity.tokens),
        hidden_(config.hidden_size),
        intermediate_(config.intermediate_size),
        heads_(config.num_attention_heads),
        activation_(config.hidden_act),
        eps_(static_cast<float>(config.layer_norm_eps)) {
    const PassSizes sizes{.tokens = capacity.tokens,
                          .hidden = hidden_,
                          .wide = std::max(3 * hidden_, config.intermediate_size),
                          .heads = heads_,
                          .scratch = scratch_floats(weights_, config, capacity),
                          .has_int8 = plan_.precision == Precision::kInt8};
    for (int i = 0; i < capacity.threads; ++i) arenas_.emplace_back(sizes);
    choose_forms();
  }

  std::optional<NotFinite> run(const PackedTokens& tokens, int thread, const Share& share, float* outputs) override {
    Chunk chunk{tokens, share, arenas_[share.is_whole() ? static_cast<size_t>(thread) : 0].arrays()};
    chunk.arrays.scratch = arenas_[static_cast<size_t>(thread)].arrays().scratch;
    embed(chunk);
    int64_t rows = tokens.num_tokens();
    for (int64_t layer = 0; layer < std::ssize(weights_.layers); ++layer) {
      const bool last = layer + 1 == std::ssize(weights_.layers);
      if (const auto stop = run_layer(layer, rows, chunk)) {
        const NotFinite found = place_of(*stop, layer, chunk);
        share.wait();  // nobody reads the arrays any more
        return found;
      }
      if (last && reads_first_tokens(head_)) rows = tokens.num_sequences();
    }
    if (const auto* pooled = std::get_if<PooledHead>(&head_)) {
      pool(*pooled, chunk, outputs);
    } else {
      classify(rows, chunk, outputs);
    }
    share.wait();
    return std::nullopt;
  }

  void keep_in_bf16(std::span<const LinearName> linears) override {
    plan_.bf16_linears.assign(linears.begin(), linears.end());
    choose_forms();
  }

  bool have_weights_changed() const override { return weights_.mapped && weights_.mapped->has_changed(); }
  MemoryUse memory() const override {
    MemoryUse use{.weights = weights_.bytes};
    for (const PassArena<T>& arena : arenas_) use.activations += arena.bytes();
    return use;
  }

 private:
  struct Chunk {
    const PackedTokens& tokens;
    const Share& share;
    PassArrays<T> arrays;
  };
  struct Stop {
    Linear linear;
    int64_t row;
  };

  NotFinite place_of(const Stop& stop, int64_t layer, const Chunk& chunk) const {
    const int32_t* const offsets = chunk.arrays.offsets;
    const auto after = std::upper_bound(offsets, offsets + chunk.tokens.num_sequences(), stop.row);
    const bool last = layer + 1 == std::ssize(weights_.layers);
    const bool of_first_tokens = last && reads_first_tokens(head_) && stop.linear != Linear::kQkv;
    return {{layer, stop.linear}, of_first_tokens ? stop.row : after - offsets - 1};
  }

  void choose_forms() {
    in_int8_.clear();
    for (int64_t layer = 0; layer < std::ssize(weights_.layers); ++layer) {
      for (int linear = 0; linear < kLinears; ++linear) {
        in_int8_.push_back(plan_.computes_in_int8({layer, static_cast<Linear>(linear)}));
      }
    }
  }

  // Reads arrays.hidden and overwrites it with the layer's output; that of the last layer is of first tokens only if
  // the head reads no others.
  std::optional<Stop> run_layer(int64_t index, int64_t rows, const Chunk& chunk) const {
    const LayerWeights<T>& layer = weights_.layers[static_cast<size_t>(index)];
    const PassArrays<T>& arrays = chunk.arrays;
    int64_t bad_row = Meeting::kNothing;
    const auto linear = [&](Linear which, const Rows<T>& x, const Target<T>& to, const kernels::QuantizedRows& read) {
      const auto& weights = layer.linears[static_cast<size_t>(which)];
      const bool in_int8 = computes_in_int8(index, which);
      bad_row = chunk.share.least(layer_product({x, rows, chunk.share.part(), read}, weights, in_int8, to));
      return bad_row == Meeting::kNothing;
    };
    const kernels::QuantizedRows& written = arrays.quantized;
    if (!linear(Linear::kQkv, arrays.hidden, {arrays.wide, arrays.scratch}, written)) {
      return Stop{Linear::kQkv, bad_row};
    }
    rows = attend(index, chunk);
    if (!linear(Linear::kAttentionOutput, arrays.first, {arrays.second, arrays.scratch}, written)) {
      return Stop{Linear::kAttentionOutput, bad_row};
    }
    normalize(layer.attention_norm, rows,
              {arrays.second, &arrays.hidden, arrays.first, computes_in_int8(index, Linear::kIntermediate)}, chunk);
    if (!linear(Linear::kIntermediate, arrays.first, {arrays.wide, arrays.scratch, activation_}, written)) {
      return Stop{Linear::kIntermediate, bad_row};
    }
    const kernels::QuantizedRows intermediate = quantized_intermediate(index, rows, chunk);
    if (!linear(Linear::kOutput, arrays.wide, {arrays.second, arrays.scratch}, intermediate)) {
      return Stop{Linear::kOutput, bad_row};
    }
    normalize(layer.output_norm, rows,
              {arrays.second, &arrays.first, arrays.hidden, computes_in_int8(index + 1, Linear::kQkv)}, chunk);
    return std::nullopt;
  }

  bool computes_in_int8(int64_t layer, Linear linear) const {
    const auto at = static_cast<size_t>(layer * kLinears) + static_cast<size_t>(linear);
    return at < in_int8_.size() && in_int8_[at];  // behind the last layer there is none
  }

  // What a linear layer in int8 reads is quantized by what wrote it, row by row, while that is in a near cache. The
  // intermediate rows are whole only when they have left it, so that their product quantizes them. Threads that share
  // few rows would do so once each: they quantize a part each, where the rows of the product before were.
  kernels::QuantizedRows quantized_intermediate(int64_t layer, int64_t rows, const Chunk& chunk) const {
    if (chunk.share.is_whole() || !computes_in_int8(layer, Linear::kOutput)) return {};
    kernels::QuantizedRows place = chunk.arrays.quantized;
    const int64_t bytes = kernels::whole_tiles(tokens_) * place.stride;
    place.stride = kernels::quantized_stride(intermediate_);
    if (kernels::whole_tiles(rows) * place.stride > bytes) return {};
    quantize(chunk.arrays.wide, intermediate_, chunk.share.range(rows), place);
    chunk.share.wait();
    return place;
  }

  static void quantize(const Rows<T>& x, int64_t columns, const Share::Range& rows, const kernels::QuantizedRows& to) {
    if constexpr (std::is_same_v<T, kernels::BFloat16>) {
      kernels::quantize_rows({.data = x.row(rows.begin), .stride = x.stride, .rows = rows.size(), .depth = columns},
                             to.from(rows.begin));
    }
  }

  void classify(int64_t rows, const Chunk& chunk, float* outputs) const {
    Rows<T> input = chunk.arrays.hidden;
    if (const auto& dense = weights_.head.dense) {
      product({input, rows, chunk.share.part()}, *dense,
              {chunk.arrays.first, chunk.arrays.scratch, weights_.head.dense_activation});
      chunk.share.wait();
      input = chunk.arrays.first;
    }
    const LinearWeights<T>& classifier = *weights_.head.classifier;
    product<float>({input, rows, chunk.share.part()}, classifier,
                   {{outputs, classifier.weight.columns()}, chunk.arrays.scratch});
  }

  // A thread's part of x[rows, inputs].
  struct Operand {
    Rows<T> x;
    int64_t rows;
    const kernels::ThreadPart& part;
    kernels::QuantizedRows quantized = {};  // what a layer in int8 reads instead, where it has data
  };
  template <typename Out>
  struct Target {
    Rows<Out> y;
    float* scratch;
    std::optional<kernels::Activation> activation = std::nullopt;
  };

  // y = activation(x weight + bias)
  template <typename Out = T>
  static void product(const Operand& operand, const LinearWeights<T>& linear, const Target<Out>& to) {
    kernels::matmul_on_thread<T, Out>(
        {.rows = operand.rows,
         .columns = linear.weight.columns(),
         .depth = linear.weight.depth(),
         .a = {operand.x.data, operand.x.stride},
         .b = {},
         .result = {.c = to.y.data, .stride = to.y.stride, .bias = linear.bias.data(), .activation = to.activation}},
        linear.weight, to.scratch, operand.part);
  }

  // The first row of this part that is not finite, or kNothing; plain products do not look for it.
  static int64_t layer_product(const Operand& operand, const LayerLinear<T>& linear, bool in_int8,
                               const Target<T>& to) {
    if constexpr (std::is_same_v<T, kernels::BFloat16>) {
      if (in_int8) {
        const QuantizedLinear& quantized = *linear.quantized;
        const int64_t row = kernels::int8_matmul_on_thread<T>({.rows = operand.rows,
                                                               .a = operand.x.data,
                                                               .a_stride = operand.x.stride,
                                                               .quantized = operand.quantized,
                                                               .c = to.y.data,
                                                               .c_stride = to.y.stride,
                                                               .bias = quantized.bias.data(),
                                                               .activation = to.activation},
                                                              quantized.weight, to.scratch, operand.part);
        return row == kernels::kAllRowsFinite ? Meeting::kNothing : row;
      }
    }
    product(operand, *linear.plain, to);
    return Meeting::kNothing;
  }

  struct NormOperands {
    Rows<T> x;                // overwritten with the sum
    const Rows<T>* residual;  // may be null
    Rows<T> y;
    bool quantized = false;  // also to arrays.quantized
  };
  void normalize(const NormWeights<T>& norm, int64_t rows, const NormOperands& operands, const Chunk& chunk) const {
    constexpr int64_t kRowsInNearCache = 8;
    const Share::Range mine = chunk.share.range(rows);
    const int64_t step = operands.quantized ? kRowsInNearCache : std::max<int64_t>(mine.size(), 1);
    for (int64_t begin = mine.begin; begin < mine.end; begin += step) {
      const Share::Range some{begin, std::min(mine.end, begin + step)};
      kernels::residual_layer_norm_forward<T>(
          {.x = operands.x.row(some.begin),
           .residual = operands.residual == nullptr ? nullptr : operands.residual->row(some.begin),
           .gamma = norm.gamma.data(),
           .beta = norm.beta.data(),
           .sum = operands.x.row(some.begin),
           .y = operands.y.row(some.begin),
           .mean = chunk.arrays.mean + some.begin,
           .rstd = chunk.arrays.rstd + some.begin,
           .tokens = some.size(),
           .columns = hidden_,
           .stride = operands.y.stride,  // that of all three
           .eps = eps_});
      if (operands.quantized) quantize(operands.y, hidden_, some, chunk.arrays.quantized);
    }
    chunk.share.wait();
  }

  static kernels::EmbeddingTable<const T> table(const at::Tensor& rows, const int32_t* ids) {
    return {static_cast<const T*>(rows.const_data_ptr()), rows.size(0), ids};
  }

  // Fills arrays.hidden.
  void embed(const Chunk& chunk) const {
    const PackedTokens& tokens = chunk.tokens;
    const PassArrays<T>& arrays = chunk.arrays;
    if (chunk.share.leads()) {
      write_places(tokens, positions_,
                   {.positions = arrays.positions, .types = arrays.types, .offsets = arrays.offsets});
    }
    chunk.share.wait();
    const Share::Range mine = chunk.share.range(tokens.num_tokens());
    const int32_t* const ids = tokens.own_ids().data() + mine.begin;
    kernels::EmbeddingForward<T> lookup{.word = table(weights_.embeddings.word, ids),
                                        .position = table(weights_.embeddings.position, arrays.positions + mine.begin),
                                        .out = arrays.first.row(mine.begin),
                                        .tokens = mine.size(),
                                        .columns = hidden_,
                                        .stride = arrays.first.stride};
    if (weights_.embeddings.token_type.defined()) {
      lookup.type = table(weights_.embeddings.token_type, arrays.types + mine.begin);
    }
    kernels::embedding_forward<T>(lookup);
    normalize(weights_.embeddings.norm, tokens.num_tokens(),
              {arrays.first, nullptr, arrays.hidden, computes_in_int8(0, Linear::kQkv)}, chunk);
  }

  // arrays.first = attention(arrays.wide), and quantized where the next linear layer wants it. Returns its rows: in the
  // last layer of a head that reads no others, the first of each sequence.
  int64_t attend(int64_t layer, const Chunk& chunk) const {
    const PassArrays<T>& arrays = chunk.arrays;
    const bool of_first_tokens = layer + 1 == std::ssize(weights_.layers) && reads_first_tokens(head_);
    const bool quantizes = computes_in_int8(layer, Linear::kAttentionOutput);
    const bool at_once = quantizes && !of_first_tokens && chunk.share.is_whole();  // else rows are not whole yet
    for (int64_t s = 0; s < chunk.tokens.num_sequences(); ++s) {
      attend_sequence(s, chunk);
      if (at_once) quantize(arrays.first, hidden_, {arrays.offsets[s], arrays.offsets[s + 1]}, arrays.quantized);
    }
    chunk.share.wait();
    int64_t rows = chunk.tokens.num_tokens();
    if (of_first_tokens) {
      rows = chunk.tokens.num_sequences();
      if (chunk.share.leads()) {
        keep_first_tokens(rows, arrays.offsets, arrays.first);
        keep_first_tokens(rows, arrays.offsets, arrays.hidden);
      }
      chunk.share.wait();
    }
    if (quantizes && !at_once) {
      quantize(arrays.first, hidden_, chunk.share.range(rows), arrays.quantized);
      chunk.share.wait();
    }
    return rows;
  }

  // This thread's heads of a sequence.
  void attend_sequence(int64_t sequence, const Chunk& chunk) const {
    const PassArrays<T>& arrays = chunk.arrays;
    const int64_t head_dim = hidden_ / heads_;
    const Share::Range mine = chunk.share.range(heads_);
    if (mine.size() == 0) return;
    const int64_t row = arrays.offsets[sequence];
    const int32_t offsets[] = {0, arrays.offsets[sequence + 1] - arrays.offsets[sequence]};
    const T* const q = arrays.wide.row(row) + mine.begin * head_dim;
    kernels::attention_forward_on_thread<T>(
        {.shape = {.offsets = offsets,
                   .num_sequences = 1,
                   .num_heads = mine.size(),
                   .head_dim = head_dim,
                   .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))},
         .q = q,
         .k = q + hidden_,
         .v = q + 2 * hidden_,
         .qkv_stride = arrays.wide.stride,
         .out = arrays.first.row(row) + mine.begin * head_dim,
         .out_stride = arrays.first.stride,
         .lse = arrays.lse + mine.begin * chunk.tokens.num_tokens() + row * mine.size()},
        arrays.scratch);
  }

  // Sums in the order of the tokens: a sequence's result depends on nothing else.
  void pool(const PooledHead& head, const Chunk& chunk, float* outputs) const {
    const PassArrays<T>& arrays = chunk.arrays;
    const Share::Range mine = chunk.share.range(chunk.tokens.num_sequences());
    for (int64_t s = mine.begin; s < mine.end; ++s) {
      float* const y = outputs + s * hidden_;
      const bool first = head.pooling == Pooling::kFirst;
      const int64_t begin = first ? s : arrays.offsets[s];
      const int64_t end = first ? s + 1 : arrays.offsets[s + 1];
      std::fill_n(y, hidden_, 0.0F);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < hidden_; ++i) y[i] += kernels::to_float(arrays.hidden.row(row)[i]);
      }
      const auto count = static_cast<float>(end - begin);
      for (int64_t i = 0; i < hidden_; ++i) y[i] /= count;
      if (head.length == PooledHead::Length::kOne) scale_to_one(y);
    }
  }

  void scale_to_one(float* y) const {
    constexpr double kSmallest = 1e-12;  // as torch.nn.functional.normalize
    double squares = 0;
    for (int64_t i = 0; i < hidden_; ++i) squares += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    const auto norm = static_cast<float>(std::max(std::sqrt(squares), kSmallest));
    for (int64_t i = 0; i < hidden_; ++i) y[i] /= norm;
  }

  // Moves each sequence's first row to the sequence's place, which is never behind it.
  void keep_first_tokens(int64_t num_sequences, const int32_t* offsets, const Rows<T>& rows) const {
    for (int64_t s = 1; s < num_sequences; ++s) std::copy_n(rows.row(offsets[s]), hidden_, rows.row(s));
  }

  EncoderWeights<T> weights_;
  PrecisionPlan plan_;
  Head head_;
  std::vector<bool> in_int8_;  // [layers, kLinears]
  models::PositionRule positions_;
  int64_t tokens_;  // that arrays have room for
  int64_t hidden_, intermediate_, heads_;
  kernels::Activation activation_;
  float eps_;
  std::vector<PassArena<T>> arenas_;
};

}  // namespace

std::unique_ptr<EncoderPass> make_encoder_pass(const EncoderSource& from, const PassCapacity& capacity) {
  const auto make = [&]<typename T>(T) -> std::unique_ptr<EncoderPass> {
    return std::make_unique<TypedPass<T>>(load_encoder_weights<T>(from), from.config, from.plan, from.head, capacity);
  };
  return from.plan.precision == Precision::kFp32 ? make(float{}) : make(kernels::BFloat16{});
}

}  // namespace strake::inference
