#include "strake/models/layers/token_nll.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "strake/core/error.h"
#include "strake/kernels/column_sum.h"
#include "strake/kernels/cross_entropy.h"
#include "strake/models/layers/node.h"
#include "strake/models/layers/planned_products.h"
#include "strake/models/layers/vocabulary_products.h"

namespace strake::models::layers {
namespace {

// Tokens whose logits are there at a time: 200 MB in fp32 for a vocabulary of 50000. Each chunk adds to the gradient of
// the whole weight, which is cheap beside the products only for chunks of this size.
constexpr int64_t kChunkTokens = 1024;
// The same on GPUs, whose products outrun such additions further.
constexpr int64_t kChunkTokensOnGpu = 4096;

// How many predictions are computed at a time, and whether the weight's gradient is then a sum.
struct Chunks {
  int64_t most;
  VocabularyProducts::Parts parts;
};
Chunks chunks_of(int64_t predictions, bool on_gpu) {
  using Parts = VocabularyProducts::Parts;
  const int64_t most = on_gpu ? kChunkTokensOnGpu : kChunkTokens;
  return {.most = most, .parts = predictions > most ? Parts::kSeveral : Parts::kOne};
}

// Of a batch that was filled up, so that cuBLAS meets few numbers of rows, predictions are filled up, too.
int64_t rows_of(int64_t predictions, int64_t tokens, bool is_filled) { return is_filled ? tokens : predictions; }

// What is predicted, and from which tokens; on the batch's device.
struct Predictions {
  int64_t count;            // N
  at::Tensor rows;          // int64 [N or more]: the token before; any token behind the N. Undefined: all, in order
  at::Tensor targets;       // int32 [N]
  at::Tensor host_targets;  // the same in memory of the host
};

Predictions predictions_of(const tensors::PackedBatch& placed) {
  const tensors::PackedBatch& batch = placed.on_host();
  const int64_t count = batch.num_tokens() - batch.num_sequences();
  const int64_t num_rows = rows_of(count, placed.num_tokens(), placed.num_tokens() > batch.num_tokens());
  const Predictions result{
      .count = count, .rows = at::zeros({num_rows}, at::kLong), .host_targets = at::empty({count}, at::kInt)};
  const auto* ids = batch.input_ids.const_data_ptr<int32_t>();
  const auto* offsets = batch.offsets.const_data_ptr<int32_t>();
  auto* row = result.rows.mutable_data_ptr<int64_t>();
  auto* target = result.host_targets.mutable_data_ptr<int32_t>();
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    for (int64_t t = offsets[s]; t + 1 < offsets[s + 1]; ++t) {
      *row++ = t;
      *target++ = ids[t + 1];
    }
  }
  const at::Device device = placed.input_ids.device();
  return {.count = count,
          .rows = tensors::to_device(result.rows, device),
          .targets = tensors::to_device(result.host_targets, device),
          .host_targets = result.host_targets};
}

struct TokenNllNode final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    check_scale(gradients[0]);
    if (weight_gradient.defined()) {
      weight.sink->accept(weight.index, weight_gradient);
      weight_gradient.reset();
    } else if (is_trained(weight)) {
      weight.sink->add_target(weight.index, std::nullopt);  // sequences of one token predict nothing
    }
    if (bias_gradient.defined()) {
      bias.sink->accept(bias.index, bias_gradient);
      bias_gradient.reset();
    } else if (is_trained(bias)) {
      bias.sink->add_target(bias.index, std::nullopt);
    }
    if (!state_gradient.defined() || !rows.defined()) return {state_gradient};
    at::Tensor dhidden = at::zeros({num_tokens, state_gradient.size(1)}, state_gradient.options());
    dhidden.index_copy_(0, rows, state_gradient.narrow(0, 0, rows.numel()));
    return {dhidden};
  }
  void release_variables() override {
    weight_gradient.reset(), bias_gradient.reset(), state_gradient.reset(), rows.reset();
  }

  // Gradients were taken for this one. GPUs would have to be waited for, where all is as here.
  void check_scale(const at::Tensor& output_gradient) const {
    if (output_gradient.numel() == 0 || output_gradient.is_cuda()) return;
    const double error = output_gradient.sub(scale).abs().max().item<double>();
    require(error <= 1e-6 * std::abs(scale), ErrorKind::kInternal,
            "a token's loss has a gradient that differs from {} by {}", scale, error);
  }

  Parameter weight, bias;
  double scale = 1;
  int64_t num_tokens = 0;
  at::Tensor rows;
  at::Tensor state_gradient;   // [N or more, H]; undefined if the hidden states need none
  at::Tensor weight_gradient;  // [V, H]; undefined if the weight is frozen
  at::Tensor bias_gradient;    // fp32 [V], likewise
};

// Adds to fp32 [V], which is undefined before the first call.
void add_bias_gradient(const at::Tensor& dlogits, at::Tensor& sum) {
  const at::Tensor part = at::empty({dlogits.size(1)}, dlogits.options().dtype(at::kFloat));
  dispatch_storage(dlogits, [&]<typename T>(T*, const auto& place) {
    kernels::column_sum<T>({.x = const_storage<T>(dlogits),
                            .stride = dlogits.stride(0),
                            .out = part.mutable_data_ptr<float>(),
                            .tokens = dlogits.size(0),
                            .columns = dlogits.size(1)},
                           place);
  });
  sum = sum.defined() ? sum.add_(part) : part;
}

// VocabularyProducts::add_weight_gradient.
void add_planned_part(PlannedGraph& graph, const PlannedTensor& part, PlannedTensor& sum) {
  if (!sum.defined()) {
    sum = part;
    return;
  }
  if (sum.element_size != sizeof(float)) sum = graph.empty(sum.rows, sum.columns, sizeof(float));
  if (part.element_size != sizeof(float)) graph.empty(part.rows, part.columns, sizeof(float));  // converted to be added
}

// The projection's bias has no value where there is none.
at::Tensor nll_of(const at::Tensor& hidden, const Predictions& predictions, const VocabularyProjection& projection,
                  const StepContext& context) {
  const auto& [weight, bias, smoothing] = projection;
  const at::Tensor nll = at::empty({predictions.count}, hidden.options().dtype(at::kFloat));
  const bool takes_state_gradient = hidden.requires_grad();
  const bool recording = is_trained(weight) || is_trained(bias) || takes_state_gradient;
  const VocabularyProducts products(weight.value, matmul_library_for(hidden));
  auto node = std::make_shared<TokenNllNode>();
  node->weight = weight;
  node->bias = bias;
  node->scale = 1 / context.loss_divisor;
  node->num_tokens = hidden.size(0);
  if (predictions.rows.defined()) node->rows = predictions.rows.narrow(0, 0, predictions.count);
  without_recording([&] {
    const at::Tensor states = predictions.rows.defined() ? hidden.index_select(0, predictions.rows) : hidden.detach();
    if (takes_state_gradient) node->state_gradient = at::empty_like(states);
    const auto [most, parts] = chunks_of(predictions.count, states.is_cuda());
    for (int64_t begin = 0; begin < predictions.count; begin += most) {
      const int64_t rows = std::min(most, states.size(0) - begin);
      const int64_t count = std::min(rows, predictions.count - begin);
      const at::Tensor chunk = states.narrow(0, begin, rows);
      const at::Tensor logits = products.logits(chunk);
      if (bias.value.defined()) logits.add_(bias.value);
      dispatch_storage(logits, [&]<typename T>(T*, const auto& place) {
        kernels::cross_entropy<T>({.logits = const_storage<T>(logits),
                                   .targets = predictions.targets.const_data_ptr<int32_t>() + begin,
                                   .nll = nll.mutable_data_ptr<float>() + begin,
                                   .gradient = recording ? storage<T>(logits) : nullptr,
                                   .scale = static_cast<float>(node->scale),
                                   .smoothing = smoothing,
                                   .tokens = count,
                                   .classes = logits.size(1),
                                   .stride = logits.stride(0),
                                   .host_targets = predictions.host_targets.const_data_ptr<int32_t>() + begin},
                                  place);
      });
      if (recording && count < rows) logits.narrow(0, count, rows - count).zero_();
      if (takes_state_gradient) {
        node->state_gradient.narrow(0, begin, rows).copy_(products.state_gradient(logits));
      }
      if (is_trained(weight)) products.add_weight_gradient(logits, chunk, parts, node->weight_gradient);
      if (is_trained(bias)) add_bias_gradient(logits, node->bias_gradient);
    }
  });
  return recording ? attach(nll, node, hidden) : nll;
}

// Of a chunk's gradients of logits.
struct PlannedPart {
  const PlannedTensor& logits;
  int64_t width;
  int64_t classes;
  VocabularyProducts::Parts parts;
};
void add_planned_weight_gradient(PlannedGraph& graph, const PlannedPart& from, PlannedTensor& sum) {
  const auto& [logits, width, classes, parts] = from;
  graph.multiply(classes, logits.rows, width);
  const bool in_place =
      graph.is_on_gpu() || (parts == VocabularyProducts::Parts::kSeveral && multiplies_in_place(graph));
  if (in_place && sum.defined()) return;
  const int64_t of_gradient = in_place ? int64_t{sizeof(float)} : graph.element_size();
  const PlannedTensor part = graph.empty(logits.columns, width, of_gradient);
  if (!in_place) use_weight_gradient_workspace(graph, {.tokens = logits.rows, .outputs = classes, .inputs = width});
  add_planned_part(graph, part, sum);
}

struct PlannedPredictions {
  int64_t count;
  std::optional<int64_t> selected;  // rows of the hidden states, copied; none: all of them, where they are
};

struct PlannedProjection {
  int64_t classes;
  Trained weight;
  Trained bias = Trained::kNo;
};

PlannedTensor planned_nll(PlannedGraph& graph, const PlannedTensor& hidden, const PlannedPredictions& predictions,
                          const PlannedProjection& projection) {
  const auto& [classes, weight, bias] = projection;
  const int64_t count = predictions.count;
  const int64_t num_rows = predictions.selected.value_or(count);
  const auto [most, parts] = chunks_of(count, graph.is_on_gpu());
  const int64_t words = graph.is_on_gpu() ? VocabularyProducts::rounded(classes) : classes;
  const int64_t width = hidden.columns;
  const PlannedTensor rows = predictions.selected ? graph.empty(num_rows, 1, sizeof(int64_t)) : PlannedTensor();
  const PlannedTensor targets = graph.empty(count, 1, sizeof(int32_t));
  PlannedTensor nll = graph.empty(count, 1, sizeof(float));
  PlannedTensor state_gradient, weight_gradient, bias_gradient;
  const bool takes_state_gradient = graph.records({hidden});
  const bool takes_weight_gradient = graph.takes_gradients() && weight == Trained::kYes;
  const bool takes_bias_gradient = graph.takes_gradients() && bias == Trained::kYes;
  {
    const PlannedTensor states = predictions.selected ? graph.empty(num_rows, width) : hidden;
    if (takes_state_gradient) state_gradient = graph.empty_like(states);
    for (int64_t begin = 0; begin < count; begin += most) {
      const PlannedTensor logits = graph.empty(std::min(most, num_rows - begin), words);
      const ProductShape shape{.tokens = logits.rows, .outputs = classes, .inputs = width};
      use_linear_workspace(graph, shape);
      graph.multiply(logits.rows, width, classes);
      if (takes_state_gradient) {
        const PlannedTensor part = graph.empty(logits.rows, width);
        use_input_gradient_workspace(graph, shape);
        graph.multiply(logits.rows, classes, width);
      }
      if (takes_weight_gradient) {
        add_planned_weight_gradient(graph, {logits, width, classes, parts}, weight_gradient);
      }
      if (takes_bias_gradient) {
        const PlannedTensor part = graph.empty(1, classes, sizeof(float));
        if (!bias_gradient.defined()) bias_gradient = part;
      }
    }
  }
  graph.attach(
      {&nll}, {hidden}, {rows, state_gradient, weight_gradient, bias_gradient},
      [&graph, tokens = hidden.rows, selects = predictions.selected.has_value()](
          PlannedGraph::Saved& saved, const PlannedGraph::Saved&) -> PlannedGraph::Saved {
        for (int i = 0; i < 2; ++i) {
          if (saved[2].defined()) graph.accept(saved[2]);
          saved.erase(saved.begin() + 2);
        }
        if (!saved[1].defined() || !selects) return {saved[1]};
        return {graph.empty(tokens, saved[1].columns)};
      },
      weight == Trained::kYes ? weight : bias);
  return nll;
}

}  // namespace

at::Tensor token_nll(const at::Tensor& hidden, const Parameter& weight, const StepContext& context, float smoothing) {
  return nll_of(hidden, predictions_of(context.batch), {.weight = weight, .bias = {}, .smoothing = smoothing}, context);
}

at::Tensor target_nll(const at::Tensor& states, const at::Tensor& targets, const VocabularyProjection& projection,
                      const StepContext& context) {
  const Predictions all{
      .count = states.size(0), .targets = tensors::to_device(targets, states.device()), .host_targets = targets};
  return nll_of(states, all, projection, context);
}

PlannedTensor token_nll(PlannedGraph& graph, const PlannedTensor& hidden, int64_t classes, Trained weight) {
  const int64_t count = graph.batch().tokens - graph.batch().sequences;
  const int64_t num_rows = rows_of(count, graph.tokens(), graph.tokens() > graph.batch().tokens);
  return planned_nll(graph, hidden, {.count = count, .selected = num_rows}, {.classes = classes, .weight = weight});
}

PlannedTensor target_nll(PlannedGraph& graph, const PlannedTensor& states, int64_t classes,
                         const TrainedAffine& projection) {
  return planned_nll(graph, states, {.count = states.rows, .selected = std::nullopt},
                     {.classes = classes, .weight = projection.weight, .bias = projection.bias});
}

}  // namespace strake::models::layers
