// Every layer's backward pass against differences of its forward pass.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "strake/models/layers/attention.h"
#include "strake/models/layers/dropout.h"
#include "strake/models/layers/embedding.h"
#include "strake/models/layers/linear.h"
#include "strake/models/layers/residual_layer_norm.h"
#include "strake/models/layers/select_tokens.h"
#include "strake/models/layers/token_nll.h"
#include "strake/models/test_model.h"
#include "strake/tensors/compute_threads.h"

namespace strake::models::layers::gradients_test {
namespace {

using kernels::Activation;

struct LayerUnderTest {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs, const Parameters& parameters)> forward;
};

Parameters with_sink(const std::vector<at::Tensor>& values, GradientSink* sink) {
  Parameters parameters;
  for (size_t i = 0; i < values.size(); ++i) parameters.push_back({values[i], i, sink});
  return parameters;
}

// sum(output * weights), added up in double precision.
double weighted_sum(const LayerUnderTest& layer, const at::Tensor& weights) {
  const c10::AutoGradMode off(false);
  const at::Tensor output = layer.forward(layer.inputs, with_sink(layer.parameters, nullptr));
  return (output.to(at::kDouble) * weights.to(at::kDouble)).sum().item<double>();
}

// Central differences of weighted_sum by every element of `tensor`, which is changed and put back.
at::Tensor differences(const LayerUnderTest& layer, const at::Tensor& weights, const at::Tensor& tensor) {
  constexpr float kStep = 5e-3F;
  at::Tensor result = at::zeros(tensor.sizes());
  auto* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const float middle = values[i];
    values[i] = middle + kStep;
    const double above = weighted_sum(layer, weights);
    values[i] = middle - kStep;
    const double below = weighted_sum(layer, weights);
    values[i] = middle;
    result.mutable_data_ptr<float>()[i] = static_cast<float>((above - below) / (2 * kStep));
  }
  return result;
}

// The difference quotient is off by step^2 / 6 times the third derivative (some 1e-5 here) and by fp32 rounding of the
// outputs divided by the step (some 1e-7 * 10 / 5e-3 = 2e-4); both relative to gradients of order 1.
void expect_close(const at::Tensor& gradient, const at::Tensor& expected, const std::string& name) {
  ASSERT_TRUE(gradient.defined()) << name;
  EXPECT_GT(expected.abs().max().item<double>(), 1e-2) << name << ": a gradient of zero would prove nothing";
  EXPECT_LT((gradient - expected).abs().max().item<double>(), 2e-3 * (1 + expected.abs().max().item<double>())) << name;
}

// With gradients `weights` of the output.
void check_gradients(const LayerUnderTest& layer, const at::Tensor& weights) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : layer.inputs) leaves.push_back(input.clone().requires_grad_());
  RecordingSink sink(layer.parameters);
  const at::Tensor output = layer.forward(leaves, with_sink(layer.parameters, &sink));
  output.backward(weights);
  EXPECT_EQ(sink.gradients.size(), layer.parameters.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    expect_close(leaves[i].grad(), differences(layer, weights, layer.inputs[i]), "input " + std::to_string(i));
  }
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    expect_close(sink.gradients[i], differences(layer, weights, layer.parameters[i]), "parameter " + std::to_string(i));
  }
}

void check_gradients(const LayerUnderTest& layer) {
  const c10::AutoGradMode off(false);
  const at::Tensor output = layer.forward(layer.inputs, with_sink(layer.parameters, nullptr));
  const at::Tensor weights = wave(output.sizes(), 0.3);
  const c10::AutoGradMode on(true);
  check_gradients(layer, weights);
}

// Eight tokens in three sequences, and dropout in force.
class LayerGradients : public testing::Test {
 protected:
  void SetUp() override { tensors::set_compute_threads(1); }  // thousands of tiny passes

  kernels::Dropout dropout(uint32_t site) const { return context_.dropout(site, 0.4); }
  void check_attention(const AttentionOptions& options) const {
    check_gradients({{wave({8, 24}, 1)}, {}, [&](const auto& x, const Parameters&) {
                       return self_attention(x[0], options, context_);
                     }});
  }

  const tensors::PackedBatch batch_ = packed_batch({3, 1, 4});
  const StepContext context_{batch_, philox_key(5, 1)};
};

TEST_F(LayerGradients, OfLinearAgreeWithDifferences) {
  check_gradients({{wave({8, 6}, 1)}, {wave({5, 6}, 2), wave({5}, 3)}, [](const auto& x, const Parameters& p) {
                     return linear(x[0], p[0], p[1]);
                   }});
}

TEST_F(LayerGradients, OfLinearActivationAgreeWithDifferences) {
  for (const Activation activation : {Activation::kIdentity, Activation::kGelu, Activation::kGeluTanh,
                                      Activation::kRelu, Activation::kSilu, Activation::kTanh}) {
    SCOPED_TRACE(static_cast<int>(activation));
    check_gradients({{wave({8, 6}, 1)}, {wave({5, 6}, 2), wave({5}, 3)}, [&](const auto& x, const Parameters& p) {
                       return linear_activation(x[0], p[0], p[1], activation);
                     }});
  }
}

TEST_F(LayerGradients, OfSelfAttentionAgreeWithDifferences) {
  for (const kernels::Dropout& probabilities : {kernels::Dropout{}, dropout(3)}) {
    for (const auto mask : {kernels::AttentionMask::kFull, kernels::AttentionMask::kCausal}) {
      for (const auto& scale : {std::optional<float>(), std::optional(0.9F)}) {
        SCOPED_TRACE(probabilities.p);
        check_attention({.num_heads = 2, .mask = mask, .scale = scale, .dropout = probabilities});
      }
    }
  }
}

TEST_F(LayerGradients, OfResidualLayerNormAgreeWithDifferences) {
  for (const kernels::Dropout& mask : {kernels::Dropout{}, dropout(4)}) {
    SCOPED_TRACE(mask.p);
    check_gradients(
        {{wave({8, 6}, 1), wave({8, 6}, 4)}, {wave({6}, 2), wave({6}, 3)}, [&](const auto& x, const Parameters& p) {
           return residual_layer_norm(x[0], x[1], {p[0], p[1], 1e-5}, mask, context_);
         }});
  }
}

TEST_F(LayerGradients, OfLayerNormAgreeWithDifferences) {
  check_gradients({{wave({8, 6}, 1)}, {wave({6}, 2), wave({6}, 3)}, [&](const auto& x, const Parameters& p) {
                     return layer_norm(x[0], {p[0], p[1], 1e-5}, context_);
                   }});
}

TEST_F(LayerGradients, OfResidualSumAndNormAgreeWithDifferences) {
  for (const kernels::Dropout& mask : {kernels::Dropout{}, dropout(4)}) {
    SCOPED_TRACE(mask.p);
    check_gradients(
        {{wave({8, 6}, 1), wave({8, 6}, 4)}, {wave({6}, 2), wave({6}, 3)}, [&](const auto& x, const Parameters& p) {
           const NormedSum both = residual_sum_and_norm(x[0], x[1], {p[0], p[1], 1e-5}, mask, context_);
           return at::cat({both.sum, both.norm}, 1);
         }});
  }
}

TEST_F(LayerGradients, OfTokenNllAgreeWithDifferences) {
  const StepContext context{.batch = batch_, .dropout_key = {}, .loss_divisor = 4};
  for (const float smoothing : {0.0F, 0.3F}) {
    SCOPED_TRACE(smoothing);
    const LayerUnderTest layer{{wave({8, 6}, 1)}, {wave({11, 6}, 2)}, [&](const auto& x, const Parameters& p) {
                                 return token_nll(x[0], p[0], context, smoothing).sum() / context.loss_divisor;
                               }};
    check_gradients(layer, at::ones({}));
  }
}

// 2999 targets, which are three chunks.
TEST_F(LayerGradients, OfTokenNllAreSummedOverChunks) {
  const tensors::PackedBatch batch = packed_batch({3000});
  const at::Tensor hidden = wave({3000, 6}, 1).requires_grad_();
  const at::Tensor weight = wave({11, 6}, 2).requires_grad_();
  RecordingSink sink({weight});
  const StepContext context{.batch = batch, .dropout_key = {}, .loss_divisor = 2999};
  const at::Tensor nll = token_nll(hidden, {weight.detach(), 0, &sink}, context);
  (nll.sum() / 2999).backward();
  const at::Tensor found = hidden.grad().clone();
  hidden.mutable_grad().reset();
  const at::Tensor logits = at::mm(hidden.narrow(0, 0, 2999), weight.t());
  const at::Tensor expected = at::cross_entropy_loss(logits, batch.input_ids.narrow(0, 1, 2999).to(at::kLong));
  expected.backward();
  EXPECT_NEAR(nll.mean().item<double>(), expected.item<double>(), 1e-5);
  // fp32 sums of 2999 numbers in another order.
  EXPECT_LT((found - hidden.grad()).abs().max().item<double>(), 1e-5 * hidden.grad().abs().max().item<double>());
  EXPECT_LT((sink.gradients[0] - weight.grad()).abs().max().item<double>(),
            1e-4 * weight.grad().abs().max().item<double>());
}

TEST_F(LayerGradients, OfTargetNllAgreeWithDifferences) {
  const StepContext context{.batch = batch_, .dropout_key = {}, .loss_divisor = 4};
  const at::Tensor targets = at::tensor(std::vector<int32_t>{3, 10, 0, 3, 7});
  const LayerUnderTest layer{
      {wave({5, 6}, 1)}, {wave({11, 6}, 2), wave({11}, 3)}, [&](const auto& x, const Parameters& p) {
        return target_nll(x[0], targets, {.weight = p[0], .bias = p[1], .smoothing = 0.3F}, context).sum() /
               context.loss_divisor;
      }};
  check_gradients(layer, at::ones({}));
}

// The bias of a vocabulary, of three chunks.
TEST_F(LayerGradients, OfTargetNllAreSummedOverChunks) {
  const at::Tensor states = wave({3000, 6}, 1);
  const at::Tensor weight = wave({11, 6}, 2);
  const at::Tensor bias = wave({11}, 3).requires_grad_();
  const at::Tensor targets = at::arange(3000, at::kInt).remainder(11);
  RecordingSink sink({weight, bias.detach()});
  const StepContext context{.batch = batch_, .dropout_key = {}, .loss_divisor = 3000};
  const at::Tensor nll =
      target_nll(states, targets, {.weight = {weight, 0, nullptr}, .bias = {bias.detach(), 1, &sink}}, context);
  (nll.sum() / 3000).backward();
  const at::Tensor logits = at::mm(states, weight.t()) + bias;
  const at::Tensor expected = at::cross_entropy_loss(logits, targets.to(at::kLong));
  expected.backward();
  EXPECT_NEAR(nll.mean().item<double>(), expected.item<double>(), 1e-5);
  ASSERT_EQ(sink.gradients.size(), 1) << "the weight is frozen";
  // fp32 sums of 3000 numbers in another order.
  EXPECT_LT((sink.gradients[1] - bias.grad()).abs().max().item<double>(), 1e-6);
}

TEST_F(LayerGradients, OfTokenNllOfSingleTokensAreZero) {
  const tensors::PackedBatch batch = packed_batch({1, 1});
  const at::Tensor hidden = wave({2, 6}, 1).requires_grad_();
  const at::Tensor weight = wave({11, 6}, 2);
  RecordingSink sink({weight});
  const at::Tensor nll = token_nll(hidden, {weight, 0, &sink}, {.batch = batch, .dropout_key = {}, .loss_divisor = 1});
  EXPECT_EQ(nll.numel(), 0);
  nll.sum().backward();
  EXPECT_TRUE(sink.gradients[0].equal(at::zeros({11, 6})));
  EXPECT_TRUE(hidden.grad().equal(at::zeros({2, 6})));
}

TEST_F(LayerGradients, OfTokenNllRefuseAnotherOutputGradient) {
  const at::Tensor hidden = wave({8, 6}, 1).requires_grad_();
  const at::Tensor weight = wave({11, 6}, 2);
  RecordingSink sink({weight});
  const at::Tensor nll = token_nll(hidden, {weight, 0, &sink}, {.batch = batch_, .dropout_key = {}, .loss_divisor = 4});
  EXPECT_ANY_THROW(nll.sum().backward());
}

TEST_F(LayerGradients, OfEmbeddingTablesAgreeWithDifferences) {
  check_gradients({{}, {wave({11, 6}, 1), wave({10, 6}, 2), wave({2, 6}, 3)}, [&](const auto&, const Parameters& p) {
                     return embedding_sum(
                         {.word = p[0], .position = p[1], .token_type = p[2], .position_rows = batch_.positions},
                         batch_);
                   }});
}

TEST_F(LayerGradients, OfEmbeddingTablesWithoutTokenTypesAgreeWithDifferences) {
  check_gradients(
      {{}, {wave({11, 6}, 1), wave({10, 6}, 2)}, [&](const auto&, const Parameters& p) {
         return embedding_sum(
             {.word = p[0], .position = p[1], .token_type = std::nullopt, .position_rows = batch_.positions}, batch_);
       }});
}

TEST_F(LayerGradients, OfDropoutAgreeWithDifferences) {
  check_gradients({{wave({8, 6}, 1)}, {}, [&](const auto& x, const Parameters&) {
                     return layers::dropout(x[0], dropout(5), context_);
                   }});
  check_gradients({{wave({3, 6}, 1)}, {}, [&](const auto& x, const Parameters&) {
                     return dropout_of_sequences(x[0], dropout(5), context_);
                   }});
}

TEST_F(LayerGradients, OfSelectFirstAgreeWithDifferences) {
  check_gradients({{wave({8, 6}, 1)}, {}, [&](const auto& x, const Parameters&) {
                     return select_tokens(x[0], first_places(batch_));
                   }});
}

TEST_F(LayerGradients, OfDropoutHaveTheMaskOfTheForwardPass) {
  const at::Tensor x = at::ones({8, 64}).requires_grad_();
  const at::Tensor y = layers::dropout(x, dropout(5), context_);
  y.backward(at::ones({8, 64}));
  EXPECT_TRUE(x.grad().equal(y.detach()));
  // 512 elements kept with probability 0.6: five standard deviations.
  EXPECT_NEAR(y.ne(0).sum().item<double>(), 0.6 * 512, 5 * std::sqrt(512 * 0.6 * 0.4));
}

TEST_F(LayerGradients, DropoutMasksDependOnSiteAndRowButNotOnTheBatch) {
  const at::Tensor x = at::ones({8, 64});
  const at::Tensor y = layers::dropout(x, dropout(5), context_);
  EXPECT_FALSE(y.equal(layers::dropout(x, dropout(6), context_)));
  EXPECT_FALSE(y.slice(0, 0, 1).equal(y.slice(0, 3, 4))) << "position 0 of rows 100 and 101";
  tensors::PackedBatch last = packed_batch({4});  // the third sequence alone
  last.token_rows.fill_(102);
  const StepContext alone{last, context_.dropout_key};
  EXPECT_TRUE(y.slice(0, 4, 8).equal(layers::dropout(x.slice(0, 0, 4), dropout(5), alone)));
}

// Which gradients are wanted of a layer with one input and two parameters.
struct Wanted {
  bool input, weight, bias;
};
constexpr Wanted kAll{true, true, true};

struct Gradients {
  at::Tensor input;
  std::map<size_t, at::Tensor> parameters;
};

Gradients gradients_of(const LayerUnderTest& layer, const Wanted& wanted) {
  RecordingSink sink(layer.parameters);
  const at::Tensor input = layer.inputs[0].clone().requires_grad_(wanted.input);
  const Parameters parameters{{layer.parameters[0], 0, wanted.weight ? &sink : nullptr},
                              {layer.parameters[1], 1, wanted.bias ? &sink : nullptr}};
  const at::Tensor output = layer.forward({input}, parameters);
  EXPECT_EQ(output.requires_grad(), wanted.input || wanted.weight || wanted.bias);
  if (output.requires_grad()) output.backward(wave(output.sizes(), 0.3));
  return {input.grad(), sink.gradients};
}

TEST_F(LayerGradients, OfFrozenParametersAreNotTakenAndThoseOfTheOthersAreTheSame) {
  const std::vector<LayerUnderTest> all{
      {{wave({8, 6}, 1)},
       {wave({5, 6}, 2), wave({5}, 3)},
       [](const auto& x, const Parameters& p) { return linear(x[0], p[0], p[1]); }},
      {{wave({8, 6}, 1)},
       {wave({5, 6}, 2), wave({5}, 3)},
       [](const auto& x, const Parameters& p) { return linear_activation(x[0], p[0], p[1], Activation::kGelu); }},
      {{wave({8, 6}, 1)},
       {wave({6}, 2), wave({6}, 3)},
       [&](const auto& x, const Parameters& p) { return layer_norm(x[0], {p[0], p[1], 1e-5}, context_); }},
      {{wave({8, 6}, 1)}, {wave({6}, 2), wave({6}, 3)}, [&](const auto& x, const Parameters& p) {
         const NormedSum both = residual_sum_and_norm(x[0], x[0], {p[0], p[1], 1e-5}, dropout(4), context_);
         return at::cat({both.sum, both.norm}, 1);
       }}};
  for (const LayerUnderTest& layer : all) {
    const Gradients whole = gradients_of(layer, kAll);
    for (int choice = 0; choice < 7; ++choice) {
      const Wanted wanted{(choice & 1) != 0, (choice & 2) != 0, (choice & 4) != 0};
      const Gradients some = gradients_of(layer, wanted);
      ASSERT_EQ(some.input.defined(), wanted.input);
      ASSERT_EQ(some.parameters.contains(0), wanted.weight);
      ASSERT_EQ(some.parameters.contains(1), wanted.bias);
      EXPECT_TRUE(!wanted.input || some.input.equal(whole.input));
      for (const auto& [i, gradient] : some.parameters) EXPECT_TRUE(gradient.equal(whole.parameters.at(i)));
    }
  }
}

TEST_F(LayerGradients, OfTokenNllAreThoseThatAreWanted) {
  const StepContext context{.batch = batch_, .dropout_key = {}, .loss_divisor = 1};
  const auto gradients = [&](bool wants_input, bool wants_weight) {
    const at::Tensor weight = wave({11, 6}, 2);
    RecordingSink sink({weight});
    const at::Tensor hidden = wave({8, 6}, 1).requires_grad_(wants_input);
    const at::Tensor nll = token_nll(hidden, {weight, 0, wants_weight ? &sink : nullptr}, context);
    EXPECT_EQ(nll.requires_grad(), wants_input || wants_weight);
    if (nll.requires_grad()) nll.sum().backward();
    return Gradients{hidden.grad(), sink.gradients};
  };
  const Gradients whole = gradients(true, true);
  const Gradients of_input = gradients(true, false);
  EXPECT_TRUE(of_input.input.equal(whole.input));
  EXPECT_TRUE(of_input.parameters.empty());
  const Gradients of_weight = gradients(false, true);
  EXPECT_FALSE(of_weight.input.defined());
  EXPECT_TRUE(of_weight.parameters.at(0).equal(whole.parameters.at(0)));
  EXPECT_FALSE(gradients(false, false).input.defined());
}

TEST_F(LayerGradients, OfEmbeddingTablesAreThoseThatAreTrained) {
  const std::vector<at::Tensor> values{wave({11, 6}, 1), wave({10, 6}, 2), wave({2, 6}, 3)};
  const auto gradients = [&](int trained) {
    RecordingSink sink(values);
    Parameters p = with_sink(values, &sink);
    for (size_t i = 0; i < p.size(); ++i) {
      if ((trained >> i & 1) == 0) p[i].sink = nullptr;
    }
    const at::Tensor sum =
        embedding_sum({.word = p[0], .position = p[1], .token_type = p[2], .position_rows = batch_.positions}, batch_);
    EXPECT_EQ(sum.requires_grad(), trained != 0);
    if (trained != 0) sum.backward(wave(sum.sizes(), 0.3));
    return sink.gradients;
  };
  const auto whole = gradients(7);
  for (int trained = 0; trained < 7; ++trained) {
    const auto some = gradients(trained);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(some.contains(i), (trained >> i & 1) != 0);
    for (const auto& [i, gradient] : some) EXPECT_TRUE(gradient.equal(whole.at(i)));
  }
}

TEST_F(LayerGradients, AreNotRecordedInEvaluation) {
  const LayerUnderTest layer{{wave({8, 6}, 1)}, {wave({5, 6}, 2), wave({5}, 3)}, {}};
  EXPECT_FALSE(linear(layer.inputs[0], {layer.parameters[0]}, {layer.parameters[1]}).requires_grad());
}

}  // namespace
}  // namespace strake::models::layers::gradients_test
