#include "strake/inference/device_pass.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "strake/core/error.h"
#include "strake/inference/device_weights.h"
#include "strake/kernels/attention.h"
#include "strake/kernels/embedding.h"
#include "strake/kernels/residual_layer_norm.h"
#include "strake/models/encoder/embeddings.h"
#include "strake/models/place.h"
#include "strake/tensors/packed_batch.h"

namespace strake::inference {
namespace {

int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// Rows [0, count) of a tensor that counts, and how many a product takes at a time.
struct SlabRows {
  int64_t count;
  int64_t slab;

  int64_t whole() const { return round_up(count, slab); }
};

// A window of int32 numbers on the host, and the same on the device.
struct Ids {
  const int32_t* data = nullptr;
  kernels::HostIds on_host = {};
};

// What the device has to know of some sequences, copied to it at once.
class PlacedTokens {
 public:
  PlacedTokens(const PackedTokens& tokens, const models::PositionRule& rule, int64_t firsts, at::Device device)
      : tokens_(tokens.num_tokens()),
        sequences_(tokens.num_sequences()),
        firsts_(firsts),
        host_(at::zeros({3 * tokens_ + sequences_ + 1 + firsts}, at::kInt)) {
    auto* const ids = host_.mutable_data_ptr<int32_t>();
    std::ranges::copy(tokens.own_ids(), ids);
    int32_t* const offsets = ids + 3 * tokens_;
    write_places(tokens, rule, {.positions = ids + tokens_, .types = ids + 2 * tokens_, .offsets = offsets});
    std::copy_n(offsets, sequences_, offsets + sequences_ + 1);
    device_ = tensors::to_device(host_, device);
  }

  int64_t num_tokens() const { return tokens_; }
  int64_t num_sequences() const { return sequences_; }
  Ids ids() const { return at(0); }
  Ids positions() const { return at(tokens_); }
  Ids types() const { return at(2 * tokens_); }
  at::Tensor offsets() const { return device_.narrow(0, 3 * tokens_, sequences_ + 1); }
  // The first token of each sequence, then 0.
  at::Tensor firsts() const { return device_.narrow(0, 3 * tokens_ + sequences_ + 1, firsts_); }

 private:
  Ids at(int64_t begin) const {
    return {device_.const_data_ptr<int32_t>() + begin, {host_.const_data_ptr<int32_t>() + begin, tokens_}};
  }

  int64_t tokens_, sequences_, firsts_;
  at::Tensor host_, device_;
};

template <typename T>
class TypedDevicePass final : public DevicePass {
 public:
  TypedDevicePass(const EncoderSource& from, const DeviceCapacity& capacity)
      : weights_(load_device_weights(from, capacity.device)),
        head_(from.head),
        capacity_(capacity),
        positions_(from.config),
        hidden_size_(from.config.hidden_size),
        heads_(from.config.num_attention_heads),
        activation_(from.config.hidden_act),
        eps_(static_cast<float>(from.config.layer_norm_eps)),
        place_(models::place_of(weights_.word)) {
    kernels::require_attention_heads(heads_, hidden_size_ / heads_);
    require(capacity.tokens >= capacity.longest_sequence && capacity.slab_of_tokens % capacity.slab_of_sequences == 0,
            ErrorKind::kInternal, "a device's pass of {} tokens for sequences of {}, in slabs of {} and {}",
            capacity.tokens, capacity.longest_sequence, capacity.slab_of_tokens, capacity.slab_of_sequences);
    const int64_t rows = round_up(capacity.tokens, capacity.slab_of_tokens);
    capacity_.tokens = rows;  // a slab takes as long with fewer
    const int64_t intermediate = from.config.intermediate_size;
    const at::TensorOptions options = weights_.word.options();
    for (at::Tensor& rows_of_hidden : hidden_) rows_of_hidden = at::zeros({rows, hidden_size_}, options);
    const at::Tensor wide = at::zeros({rows * std::max(3 * hidden_size_, intermediate)}, options);
    qkv_ = wide.narrow(0, 0, rows * 3 * hidden_size_).view({rows, 3 * hidden_size_});
    intermediate_ = wide.narrow(0, 0, rows * intermediate).view({rows, intermediate});
    lse_ = at::empty({rows * heads_}, options.dtype(at::kFloat));
    moments_ = at::empty({2, rows}, options.dtype(at::kFloat));
    if (options.dtype() != at::kFloat) exact_ = at::zeros({rows, hidden_size_}, options.dtype(at::kFloat));
    for (const at::Tensor& buffer : {hidden_[0], hidden_[1], hidden_[2], wide, exact_, lse_, moments_}) {
      if (buffer.defined()) activation_bytes_ += static_cast<int64_t>(buffer.nbytes());
    }
  }

  void score(const PackedTokens& tokens, std::span<float> outputs) override {
    if (outputs.empty()) return;
    const c10::InferenceMode no_graph;
    const bool gives_tokens = std::holds_alternative<TokenHead>(head_);
    const int64_t rows = gives_tokens ? tokens.num_tokens() : tokens.num_sequences();
    const int64_t width = std::ssize(outputs) / rows;
    const at::Tensor all = at::empty({rows, width}, weights_.word.options().dtype(at::kFloat));
    for (int64_t begin = 0, end = 0; begin < tokens.num_sequences(); begin = end) {
      end = chunk_end(tokens, begin);
      const PackedTokens chunk = tokens.slice(begin, end);
      all.narrow(0, gives_tokens ? tokens.offsets[begin] - tokens.offsets.front() : begin,
                 gives_tokens ? chunk.num_tokens() : chunk.num_sequences())
          .copy_(run(chunk));
    }
    at::from_blob(outputs.data(), all.sizes(), at::kFloat).copy_(all);
  }

  MemoryUse memory() const override { return {.weights = weights_.bytes, .activations = activation_bytes_}; }

 private:
  // Buffers whose parts change from layer to layer.
  struct Hidden {
    at::Tensor input, attended, spare;  // [rows, hidden_size]
  };

  // As many sequences as the capacity has room for.
  int64_t chunk_end(const PackedTokens& tokens, int64_t begin) const {
    const auto past = std::ranges::upper_bound(tokens.offsets, tokens.offsets[begin] + capacity_.tokens);
    return std::max<int64_t>(past - tokens.offsets.begin() - 1, begin + 1);
  }

  // What the head gives, fp32 [sequences or tokens, width].
  at::Tensor run(const PackedTokens& chunk) {
    const SlabRows sequences{chunk.num_sequences(), capacity_.slab_of_sequences};
    const PlacedTokens tokens(chunk, positions_, sequences.whole(), capacity_.device);
    Hidden hidden{hidden_[0], hidden_[1], hidden_[2]};
    embed(tokens, hidden);
    SlabRows rows{tokens.num_tokens(), capacity_.slab_of_tokens};
    for (const DeviceLayer& layer : weights_.layers) {
      attend(layer, tokens, hidden);
      const bool is_last = &layer == &weights_.layers.back();
      if (is_last && reads_first_tokens(head_)) {
        keep_first_tokens(tokens.firsts(), hidden);
        rows = sequences;
      }
      finish(layer, rows, hidden);
    }
    if (const auto* pooled = std::get_if<PooledHead>(&head_)) return pool(*pooled, tokens, rows, hidden.input);
    return classify(rows, hidden);
  }

  // hidden.input = norm of the embeddings' sum
  void embed(const PlacedTokens& tokens, const Hidden& hidden) const {
    const at::Tensor& sum = hidden.spare;
    kernels::EmbeddingForward<T> lookup{.word = table(weights_.word, tokens.ids()),
                                        .position = table(weights_.position, tokens.positions()),
                                        .out = pointer(sum),
                                        .tokens = tokens.num_tokens(),
                                        .columns = hidden_size_};
    if (weights_.token_type.defined()) lookup.type = table(weights_.token_type, tokens.types());
    on_place([&](const auto& place) { kernels::embedding_forward<T>(lookup, place); });
    normalize(weights_.norm, tokens.num_tokens(), {.x = sum, .residual = {}, .y = hidden.input});
  }

  // hidden.attended = attention(hidden.input)
  void attend(const DeviceLayer& layer, const PlacedTokens& tokens, const Hidden& hidden) const {
    product(hidden.input, {tokens.num_tokens(), capacity_.slab_of_tokens}, linear(layer, Linear::kQkv), qkv_);
    const int64_t head_dim = hidden_size_ / heads_;
    const T* const q = pointer(qkv_);
    const kernels::AttentionForward<T> attention{
        .shape = {.offsets = tokens.offsets().template const_data_ptr<int32_t>(),
                  .num_sequences = tokens.num_sequences(),
                  .num_tokens = tokens.num_tokens(),
                  .num_heads = heads_,
                  .head_dim = head_dim,
                  .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))},
        .q = q,
        .k = q + hidden_size_,
        .v = q + 2 * hidden_size_,
        .qkv_stride = 3 * hidden_size_,
        .out = pointer(hidden.attended),
        .out_stride = hidden_size_,
        .lse = lse_.template mutable_data_ptr<float>()};
    on_place([&](const auto& place) { kernels::attention_forward<T>(attention, place); });
  }

  static void keep_first_tokens(const at::Tensor& firsts, Hidden& hidden) {
    const auto select = [&](const at::Tensor& from, const at::Tensor& to) {
      at::Tensor rows = to.narrow(0, 0, firsts.numel());
      at::index_select_out(rows, from, 0, firsts);
    };
    select(hidden.attended, hidden.spare);
    select(hidden.input, hidden.attended);
    hidden = {.input = hidden.attended, .attended = hidden.spare, .spare = hidden.input};
  }

  // hidden.input = the layer's output, of its input and what attention made of it
  void finish(const DeviceLayer& layer, const SlabRows& rows, const Hidden& hidden) const {
    product(hidden.attended, rows, linear(layer, Linear::kAttentionOutput), hidden.spare);
    normalize(layer.attention_norm, rows.count, {.x = hidden.spare, .residual = hidden.input, .y = hidden.attended});
    activated_product(hidden.attended, rows, linear(layer, Linear::kIntermediate), {intermediate_, activation_});
    product(intermediate_, rows, linear(layer, Linear::kOutput), hidden.spare);
    normalize(layer.output_norm, rows.count, {.x = hidden.spare, .residual = hidden.attended, .y = hidden.input});
  }

  // Rows [0, count) of hidden.
  at::Tensor in_fp32(const at::Tensor& hidden, int64_t count) const {
    const at::Tensor rows = hidden.narrow(0, 0, count);
    return exact_.defined() ? exact_.narrow(0, 0, count).copy_(rows) : rows;
  }

  at::Tensor classify(const SlabRows& rows, const Hidden& hidden) const {
    at::Tensor input = hidden.input;
    if (weights_.dense) {
      activated_product(input, rows, *weights_.dense, {hidden.spare, weights_.dense_activation});
      input = hidden.spare;
    }
    const at::Tensor exact = in_fp32(input, rows.whole());
    const at::Tensor logits = at::empty({rows.whole(), weights_.classifier->weight.size(0)}, exact.options());
    product(exact, rows, *weights_.classifier, logits);
    return logits.narrow(0, 0, rows.count);
  }

  at::Tensor pool(const PooledHead& head, const PlacedTokens& tokens, const SlabRows& rows,
                  const at::Tensor& hidden) const {
    const SlabRows sequences{tokens.num_sequences(), capacity_.slab_of_sequences};
    at::Tensor exact = in_fp32(hidden, rows.count);
    if (head.pooling == Pooling::kFirst && head.length == PooledHead::Length::kAsItIs) return exact;
    const at::Tensor pooled = at::zeros({sequences.whole(), hidden_size_}, exact.options());
    pooled.narrow(0, 0, sequences.count)
        .copy_(head.pooling == Pooling::kFirst
                   ? exact
                   : at::segment_reduce(exact, "mean", {}, {}, tokens.offsets(), 0, /*unsafe=*/true, {}));
    if (head.length == PooledHead::Length::kOne) scale_to_one(pooled);
    return pooled.narrow(0, 0, sequences.count);
  }

  // A slab at a time: sums over rows, too, may depend on how many there are.
  void scale_to_one(const at::Tensor& pooled) const {
    constexpr double kSmallest = 1e-12;  // as torch.nn.functional.normalize
    for (int64_t begin = 0; begin < pooled.size(0); begin += capacity_.slab_of_sequences) {
      at::Tensor slab = pooled.narrow(0, begin, capacity_.slab_of_sequences);
      const at::Tensor squares = slab.to(at::kDouble).square().sum(1, /*keepdim=*/true);
      slab.div_(squares.sqrt().clamp_min(kSmallest).to(at::kFloat));
    }
  }

  // multiply(slab of x, slab of y)
  template <typename Multiply>
  static void by_slabs(const at::Tensor& x, const SlabRows& rows, const at::Tensor& y, const Multiply& multiply) {
    for (int64_t begin = 0; begin < rows.count; begin += rows.slab) {
      at::Tensor result = y.narrow(0, begin, rows.slab);
      multiply(x.narrow(0, begin, rows.slab), result);
    }
  }

  // y = x weight^T + bias
  static void product(const at::Tensor& x, const SlabRows& rows, const DeviceAffine& linear, const at::Tensor& y) {
    by_slabs(x, rows, y, [&, weight = linear.weight.t()](const at::Tensor& some, at::Tensor& result) {
      at::addmm_out(result, linear.bias, some, weight);
    });
  }

  struct Activated {
    const at::Tensor& y;
    kernels::Activation activation;
  };
  // to.y = activation(x weight^T + bias)
  void activated_product(const at::Tensor& x, const SlabRows& rows, const DeviceAffine& linear,
                         const Activated& to) const {
    by_slabs(x, rows, to.y, [weight = linear.weight.t()](const at::Tensor& some, at::Tensor& result) {
      at::mm_out(result, some, weight);
    });
    T* const y = pointer(to.y);
    on_place([&](const auto& place) {
      kernels::bias_activation_forward<T>({.x = y,
                                           .bias = pointer(linear.bias),
                                           .y = y,
                                           .tokens = rows.count,
                                           .columns = to.y.size(1),
                                           .activation = to.activation},
                                          place);
    });
  }

  struct NormOperands {
    const at::Tensor& x;
    at::Tensor residual;  // may be undefined
    const at::Tensor& y;
  };
  void normalize(const DeviceAffine& norm, int64_t rows, const NormOperands& operands) const {
    auto* const moments = moments_.template mutable_data_ptr<float>();
    const kernels::ResidualLayerNormForward<T> args{
        .x = pointer(operands.x),
        .residual = operands.residual.defined() ? pointer(operands.residual) : nullptr,
        .gamma = pointer(norm.weight),
        .beta = pointer(norm.bias),
        .y = pointer(operands.y),
        .mean = moments,
        .rstd = moments + moments_.size(1),
        .tokens = rows,
        .columns = hidden_size_,
        .eps = eps_};
    on_place([&](const auto& place) { kernels::residual_layer_norm_forward<T>(args, place); });
  }

  template <typename Call>
  void on_place(const Call& call) const {
    std::visit(call, place_);
  }
  static T* pointer(const at::Tensor& tensor) { return static_cast<T*>(tensor.mutable_data_ptr()); }
  static kernels::EmbeddingTable<const T> table(const at::Tensor& rows, const Ids& ids) {
    return {pointer(rows), rows.size(0), ids.data, ids.on_host};
  }
  static const DeviceAffine& linear(const DeviceLayer& layer, Linear which) {
    return layer.linears[static_cast<size_t>(which)];
  }

  DeviceWeights weights_;
  Head head_;
  DeviceCapacity capacity_;
  models::PositionRule positions_;
  int64_t hidden_size_, heads_;
  kernels::Activation activation_;
  float eps_;
  kernels::Place place_;
  std::array<at::Tensor, 3> hidden_;  // [rows, hidden_size]
  at::Tensor qkv_, intermediate_;     // [rows, 3 hidden_size], [rows, intermediate_size], in the same memory
  at::Tensor exact_;                  // [rows, hidden_size] in fp32, for the head; undefined where all is
  at::Tensor lse_, moments_;          // what kernels also write
  int64_t activation_bytes_ = 0;
};

}  // namespace

std::unique_ptr<DevicePass> make_device_pass(const EncoderSource& from, const DeviceCapacity& capacity) {
  if (from.plan.precision == Precision::kFp32) return std::make_unique<TypedDevicePass<float>>(from, capacity);
  return std::make_unique<TypedDevicePass<kernels::BFloat16>>(from, capacity);
}

}  // namespace strake::inference
