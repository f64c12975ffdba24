#include "strake/inference/encoder_pass.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "strake/inference/encoder_weights.h"
#include "strake/kernels/attention.h"
#include "strake/kernels/embedding.h"
#include "strake/kernels/int8_matmul.h"
#include "strake/kernels/residual_layer_norm.h"
#include "strake/kernels/scratch.h"
#include "strake/models/encoder/embeddings.h"

namespace strake::inference {
namespace {

// Cuts one allocation into arrays that begin on cache lines. Without memory it only counts.
class Cutter {
 public:
  explicit Cutter(float* memory) : memory_(memory) {}
  template <typename T>
  T* take(int64_t count) {
    T* const piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + floats_);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    floats_ += (bytes + 63) / 64 * 16;
    return piece;
  }
  int64_t floats() const { return floats_; }

 private:
  float* memory_;
  int64_t floats_ = 0;
};

// One thread's buffers.
template <typename T>
struct Arrays {
  T* hidden;    // [tokens, hidden_size]
  T* first;     // [tokens, hidden_size]
  T* second;    // [tokens, hidden_size]
  T* wide;      // [tokens, max(3 hidden_size, intermediate_size)]
  float* lse;   // [tokens, heads]
  float* mean;  // [tokens], like those below
  float* rstd;
  int32_t* positions;
  int32_t* types;
  int32_t* offsets;  // [tokens + 1]
  float* scratch;    // of products and attention
};

struct ArraySizes {
  int64_t tokens;
  int64_t hidden;
  int64_t wide;
  int64_t heads;
  int64_t scratch;  // floats
};

template <typename T>
Arrays<T> cut(Cutter& cutter, const ArraySizes& sizes) {
  const int64_t tokens = sizes.tokens;
  return {.hidden = cutter.take<T>(tokens * sizes.hidden),
          .first = cutter.take<T>(tokens * sizes.hidden),
          .second = cutter.take<T>(tokens * sizes.hidden),
          .wide = cutter.take<T>(tokens * sizes.wide),
          .lse = cutter.take<float>(tokens * sizes.heads),
          .mean = cutter.take<float>(tokens),
          .rstd = cutter.take<float>(tokens),
          .positions = cutter.take<int32_t>(tokens),
          .types = cutter.take<int32_t>(tokens),
          .offsets = cutter.take<int32_t>(tokens + 1),
          .scratch = cutter.take<float>(sizes.scratch)};
}

template <typename T>
class Arena {
 public:
  explicit Arena(const ArraySizes& sizes) {
    Cutter count(nullptr);
    cut<T>(count, sizes);
    memory_ = kernels::AlignedFloats(count.floats());
    Cutter cutter(memory_.data());
    arrays_ = cut<T>(cutter, sizes);
  }
  const Arrays<T>& arrays() const { return arrays_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  kernels::AlignedFloats memory_;
  Arrays<T> arrays_;
};

template <typename T>
int64_t scratch_floats(const EncoderWeights<T>& weights, const models::EncoderConfig& config,
                       const PassCapacity& capacity) {
  const auto floats = [&](const LinearWeights<T>& linear) {
    return kernels::matmul_scratch<T, T>(capacity.tokens, linear.weight);
  };
  int64_t most = weights.head.dense ? floats(*weights.head.dense) : 0;
  if (weights.head.classifier) {
    most = std::max(most, kernels::matmul_scratch<T, float>(capacity.tokens, weights.head.classifier->weight));
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
        hidden_(config.hidden_size),
        heads_(config.num_attention_heads),
        activation_(config.hidden_act),
        eps_(static_cast<float>(config.layer_norm_eps)) {
    const ArraySizes sizes{.tokens = capacity.tokens,
                           .hidden = hidden_,
                           .wide = std::max(3 * hidden_, config.intermediate_size),
                           .heads = heads_,
                           .scratch = scratch_floats(weights_, config, capacity)};
    for (int i = 0; i < capacity.threads; ++i) arenas_.emplace_back(sizes);
    choose_forms();
  }

  std::optional<NotFinite> run(const PackedTokens& tokens, int thread, float* outputs) override {
    const Arrays<T>& arrays = arenas_[static_cast<size_t>(thread)].arrays();
    embed(tokens, arrays);
    int64_t rows = tokens.num_tokens();
    for (int64_t layer = 0; layer < std::ssize(weights_.layers); ++layer) {
      const bool last = layer + 1 == std::ssize(weights_.layers);
      if (const auto stop = run_layer(layer, tokens.num_sequences(), rows, arrays)) {
        const auto after = std::upper_bound(arrays.offsets, arrays.offsets + tokens.num_sequences(), stop->row);
        const bool of_first_tokens = last && reads_first_tokens() && stop->linear != Linear::kQkv;
        return NotFinite{{layer, stop->linear}, of_first_tokens ? stop->row : after - arrays.offsets - 1};
      }
      if (last && reads_first_tokens()) rows = tokens.num_sequences();
    }
    if (const auto* pooled = std::get_if<PooledHead>(&head_)) {
      pool(*pooled, tokens.num_sequences(), arrays, outputs);
      return std::nullopt;
    }
    const HeadWeights<T>& head = weights_.head;
    const T* input = arrays.hidden;
    if (head.dense) {
      product(input, rows, *head.dense, {arrays.first, arrays.scratch, head.dense_activation});
      input = arrays.first;
    }
    product<float>(input, rows, *head.classifier, {outputs, arrays.scratch});
    return std::nullopt;
  }

  void keep_in_bf16(std::span<const LinearName> linears) override {
    plan_.bf16_linears.assign(linears.begin(), linears.end());
    choose_forms();
  }

  MemoryUse memory() const override {
    MemoryUse use{.weights = weights_.bytes};
    for (const Arena<T>& arena : arenas_) use.activations += arena.bytes();
    return use;
  }

 private:
  struct Stop {
    Linear linear;
    int64_t row;
  };

  void choose_forms() {
    in_int8_.clear();
    for (int64_t layer = 0; layer < std::ssize(weights_.layers); ++layer) {
      for (int linear = 0; linear < kLinears; ++linear) {
        in_int8_.push_back(plan_.computes_in_int8({layer, static_cast<Linear>(linear)}));
      }
    }
  }

  bool reads_first_tokens() const {
    const auto* pooled = std::get_if<PooledHead>(&head_);
    return pooled != nullptr ? pooled->pooling == Pooling::kFirst : std::holds_alternative<SequenceHead>(head_);
  }

  // Reads arrays.hidden and overwrites it with the layer's output; that of the last layer is of first tokens only if
  // the head reads no others.
  std::optional<Stop> run_layer(int64_t index, int64_t num_sequences, int64_t rows, const Arrays<T>& arrays) const {
    const LayerWeights<T>& layer = weights_.layers[static_cast<size_t>(index)];
    int64_t bad_row = kernels::kAllRowsFinite;
    const auto linear = [&](Linear which, const T* x, const Target<T>& to) {
      const auto& weights = layer.linears[static_cast<size_t>(which)];
      bad_row = layer_product(x, rows, weights,
                              in_int8_[static_cast<size_t>(index * kLinears) + static_cast<size_t>(which)], to);
      return bad_row == kernels::kAllRowsFinite;
    };
    if (!linear(Linear::kQkv, arrays.hidden, {arrays.wide, arrays.scratch})) return Stop{Linear::kQkv, bad_row};
    attend(num_sequences, arrays);
    if (index + 1 == std::ssize(weights_.layers) && reads_first_tokens()) {
      rows = num_sequences;
      keep_first_tokens(rows, arrays.offsets, arrays.first);
      keep_first_tokens(rows, arrays.offsets, arrays.hidden);
    }
    if (!linear(Linear::kAttentionOutput, arrays.first, {arrays.second, arrays.scratch})) {
      return Stop{Linear::kAttentionOutput, bad_row};
    }
    normalize(layer.attention_norm, rows, {arrays.second, arrays.hidden, arrays.first}, arrays);
    if (!linear(Linear::kIntermediate, arrays.first, {arrays.wide, arrays.scratch, activation_})) {
      return Stop{Linear::kIntermediate, bad_row};
    }
    if (!linear(Linear::kOutput, arrays.wide, {arrays.second, arrays.scratch})) return Stop{Linear::kOutput, bad_row};
    normalize(layer.output_norm, rows, {arrays.second, arrays.first, arrays.hidden}, arrays);
    return std::nullopt;
  }

  template <typename Out>
  struct Target {
    Out* y;
    float* scratch;
    std::optional<kernels::Activation> activation = std::nullopt;
  };

  // y = activation(x weight + bias)
  template <typename Out = T>
  static void product(const T* x, int64_t rows, const LinearWeights<T>& linear, const Target<Out>& to) {
    const int64_t inputs = linear.weight.depth();
    const int64_t outputs = linear.weight.columns();
    kernels::matmul_on_thread<T, Out>(
        {.rows = rows,
         .columns = outputs,
         .depth = inputs,
         .a = {x, inputs},
         .b = {},
         .result = {.c = to.y, .stride = outputs, .bias = linear.bias.data(), .activation = to.activation}},
        linear.weight, to.scratch);
  }

  // The first row that is not finite, or kAllRowsFinite, which plain products do not look for.
  static int64_t layer_product(const T* x, int64_t rows, const LayerLinear<T>& linear, bool in_int8,
                               const Target<T>& to) {
    if constexpr (std::is_same_v<T, kernels::BFloat16>) {
      if (in_int8) {
        const QuantizedLinear& quantized = *linear.quantized;
        return kernels::int8_matmul_on_thread<T>({.rows = rows,
                                                  .a = x,
                                                  .a_stride = quantized.weight.depth(),
                                                  .c = to.y,
                                                  .c_stride = quantized.weight.columns(),
                                                  .bias = quantized.bias.data(),
                                                  .activation = to.activation},
                                                 quantized.weight, to.scratch);
      }
    }
    product(x, rows, *linear.plain, to);
    return kernels::kAllRowsFinite;
  }

  struct NormOperands {
    T* x;               // overwritten with the sum
    const T* residual;  // may be null
    T* y;
  };
  void normalize(const NormWeights<T>& norm, int64_t rows, const NormOperands& operands,
                 const Arrays<T>& arrays) const {
    kernels::residual_layer_norm_forward<T>({.x = operands.x,
                                             .residual = operands.residual,
                                             .gamma = norm.gamma.data(),
                                             .beta = norm.beta.data(),
                                             .sum = operands.x,
                                             .y = operands.y,
                                             .mean = arrays.mean,
                                             .rstd = arrays.rstd,
                                             .tokens = rows,
                                             .columns = hidden_,
                                             .eps = eps_});
  }

  static kernels::EmbeddingTable<const T> table(const at::Tensor& rows, const int32_t* ids) {
    return {static_cast<const T*>(rows.const_data_ptr()), rows.size(0), ids};
  }

  // Fills arrays.hidden and arrays.offsets.
  void embed(const PackedTokens& tokens, const Arrays<T>& arrays) const {
    const int64_t begin = tokens.offsets.front();
    const int32_t* const ids = tokens.ids.data() + begin;
    for (int64_t s = 0; s < tokens.num_sequences(); ++s) {
      const int64_t at = tokens.offsets[s] - begin;
      const int64_t length = tokens.length(s);
      arrays.offsets[s] = static_cast<int32_t>(at);
      positions_.write_rows({ids + at, static_cast<size_t>(length)}, arrays.positions + at);
      const int64_t zeros = tokens.second_begin.empty() ? length : std::min<int64_t>(length, tokens.second_begin[s]);
      std::fill_n(arrays.types + at, zeros, 0);
      std::fill_n(arrays.types + at + zeros, length - zeros, 1);
    }
    arrays.offsets[tokens.num_sequences()] = static_cast<int32_t>(tokens.num_tokens());
    kernels::EmbeddingForward<T> lookup{.word = table(weights_.embeddings.word, ids),
                                        .position = table(weights_.embeddings.position, arrays.positions),
                                        .out = arrays.first,
                                        .tokens = tokens.num_tokens(),
                                        .columns = hidden_};
    if (weights_.embeddings.token_type.defined()) lookup.type = table(weights_.embeddings.token_type, arrays.types);
    kernels::embedding_forward<T>(lookup);
    normalize(weights_.embeddings.norm, tokens.num_tokens(), {arrays.first, nullptr, arrays.hidden}, arrays);
  }

  // arrays.first = attention(arrays.wide)
  void attend(int64_t num_sequences, const Arrays<T>& arrays) const {
    const int64_t head_dim = hidden_ / heads_;
    kernels::attention_forward_on_thread<T>({.shape = {.offsets = arrays.offsets,
                                                       .num_sequences = num_sequences,
                                                       .num_heads = heads_,
                                                       .head_dim = head_dim,
                                                       .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))},
                                             .q = arrays.wide,
                                             .k = arrays.wide + hidden_,
                                             .v = arrays.wide + 2 * hidden_,
                                             .qkv_stride = 3 * hidden_,
                                             .out = arrays.first,
                                             .out_stride = hidden_,
                                             .lse = arrays.lse},
                                            arrays.scratch);
  }

  // Sums in the order of the tokens: a sequence's result depends on nothing else.
  void pool(const PooledHead& head, int64_t num_sequences, const Arrays<T>& arrays, float* outputs) const {
    for (int64_t s = 0; s < num_sequences; ++s) {
      float* const y = outputs + s * hidden_;
      const bool first = head.pooling == Pooling::kFirst;
      const int64_t begin = first ? s : arrays.offsets[s];
      const int64_t end = first ? s + 1 : arrays.offsets[s + 1];
      std::fill_n(y, hidden_, 0.0F);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < hidden_; ++i) y[i] += kernels::to_float(arrays.hidden[row * hidden_ + i]);
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
  void keep_first_tokens(int64_t num_sequences, const int32_t* offsets, T* rows) const {
    for (int64_t s = 1; s < num_sequences; ++s) std::copy_n(rows + offsets[s] * hidden_, hidden_, rows + s * hidden_);
  }

  EncoderWeights<T> weights_;
  PrecisionPlan plan_;
  Head head_;
  std::vector<bool> in_int8_;  // [layers, kLinears]
  models::PositionRule positions_;
  int64_t hidden_, heads_;
  kernels::Activation activation_;
  float eps_;
  std::vector<Arena<T>> arenas_;
};

}  // namespace

std::unique_ptr<EncoderPass> make_encoder_pass(const EncoderSource& from, const PassCapacity& capacity) {
  const auto make = [&]<typename T>(T) -> std::unique_ptr<EncoderPass> {
    return std::make_unique<TypedPass<T>>(load_encoder_weights<T>(from), from.config, from.plan, from.head, capacity);
  };
  return from.plan.precision == Precision::kFp32 ? make(float{}) : make(kernels::BFloat16{});
}

}  // namespace strake::inference
