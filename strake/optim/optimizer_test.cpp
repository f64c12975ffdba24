#include "strake/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "strake/core/error.h"
#include "strake/core/test_error.h"

namespace strake::optim::optimizer_test {
namespace {

using kernels::kSquaresChunk;
using kernels::TensorSegment;

std::string error_of(const std::function<void()>& action) {
  return strake::error_of(action).text_of(ErrorKind::kConfig);
}

std::string refusal(const std::string& optim, const std::string& arguments = "") {
  return error_of([&] { (void)optimizer_settings({.name = optim, .arguments = arguments}); });
}

std::string deepspeed_refusal(const std::string& type, const Json& params) {
  return error_of([&] { (void)optimizer_settings_of_deepspeed(type, params); });
}

std::vector<std::string> state_names(const OptimizerSettings& settings) {
  std::vector<std::string> names;
  const Optimizer optimizer(settings);
  for (const Optimizer::State& state : optimizer.states()) names.emplace_back(state.name);
  return names;
}

TEST(OptimizerSettings, AnEpsilonMustBeFiniteInFp32) {
  EXPECT_THAT(error_of([] { (void)Optimizer({.epsilon = 1e39}); }), testing::HasSubstr("eps=1e+39 must be positive"));
}

TEST(OptimizerSettings, AreNamedAsInTransformers) {
  using testing::ElementsAre;
  for (const char* name : {"adamw_torch", "adamw_torch_fused", "adamw"}) {
    const OptimizerSettings settings = optimizer_settings({.name = name, .betas = {0.8, 0.9}, .epsilon = 1e-6});
    EXPECT_EQ(settings.rule, OptimizerRule::kAdam);
    EXPECT_EQ(settings.weight_decay, kernels::WeightDecay::kDecoupled);
    EXPECT_EQ(settings.betas.first, 0.8);
    EXPECT_EQ(settings.epsilon, 1e-6);
    EXPECT_THAT(state_names(settings), ElementsAre("exp_avg", "exp_avg_sq"));
  }
  EXPECT_THAT(state_names(optimizer_settings({.name = "sgd"})), ElementsAre());
  const OptimizerSettings sgd =
      optimizer_settings({.name = "sgd", .arguments = "momentum=0.9, nesterov=True, dampening=0"});
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_THAT(state_names(sgd), ElementsAre("momentum_buffer"));
  const OptimizerSettings adagrad = optimizer_settings({.name = "adagrad", .arguments = "lr_decay=0.5"});
  EXPECT_EQ(adagrad.epsilon, 1e-10) << "adam_epsilon is not Adagrad's";
  EXPECT_EQ(adagrad.lr_decay, 0.5);
  EXPECT_THAT(state_names(adagrad), ElementsAre("sum"));
  EXPECT_THAT(state_names(optimizer_settings({.name = "lion_32bit"})), ElementsAre("exp_avg"));
  EXPECT_THAT(state_names(optimizer_settings({.name = "lamb"})), ElementsAre("exp_avg", "exp_avg_sq"));
}

TEST(OptimizerSettings, AreNamedAsInDeepSpeed) {
  const OptimizerSettings adam = optimizer_settings_of_deepspeed("Adam", {{"lr", 1e-3}, {"betas", {0.7, 0.8}}});
  EXPECT_EQ(adam.weight_decay, kernels::WeightDecay::kDecoupled) << "as DeepSpeed, unless adam_w_mode is false";
  EXPECT_EQ(adam.betas.second, 0.8);
  const Json coupled{{"adam_w_mode", false}, {"bias_correction", false}, {"eps", 1e-5}};
  EXPECT_EQ(optimizer_settings_of_deepspeed("Adam", coupled).weight_decay, kernels::WeightDecay::kInGradient);
  EXPECT_FALSE(optimizer_settings_of_deepspeed("Adam", coupled).bias_correction);
  EXPECT_EQ(optimizer_settings_of_deepspeed("AdamW", coupled).weight_decay, kernels::WeightDecay::kDecoupled);
  EXPECT_THAT(state_names(optimizer_settings_of_deepspeed("AdamW", {{"amsgrad", true}})),
              testing::ElementsAre("exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
  EXPECT_THAT(state_names(optimizer_settings_of_deepspeed("AdamW", {{"amsgrad", false}})), testing::SizeIs(2));
  EXPECT_EQ(optimizer_settings_of_deepspeed("Lion", Json::object()).betas.second, 0.999);
  const OptimizerSettings lamb = optimizer_settings_of_deepspeed("Lamb", {{"max_coeff", 0.3}});
  EXPECT_EQ(lamb.max_coefficient, 0.3);
  EXPECT_EQ(lamb.min_coefficient, 0.01);
  EXPECT_EQ(optimizer_settings_of_deepspeed("SGD", {{"momentum", 0.5}}).momentum, 0.5);
  const Optimizer adagrad(optimizer_settings_of_deepspeed("Adagrad", {{"initial_accumulator_value", 0.25}}));
  EXPECT_EQ(adagrad.states()[0].initial, 0.25F);
}

TEST(OptimizerSettings, RefuseWhatIsNotThereByName) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal("adamw_torc"), HasSubstr("did you mean 'adamw_torch'"));
  EXPECT_THAT(refusal("adafactor"), HasSubstr("--optim 'adafactor' is not supported"));
  EXPECT_THAT(refusal("sgd", "momentum"), HasSubstr("'momentum' is not name=value"));
  EXPECT_THAT(refusal("sgd", "momentm=0.9"), HasSubstr("did you mean 'momentum'"));
  EXPECT_THAT(refusal("sgd", "momentum=much"), HasSubstr("momentum=much is not a number"));
  EXPECT_THAT(refusal("sgd", "momentum=nan"), HasSubstr("momentum=nan"));
  EXPECT_THAT(refusal("sgd", "nesterov=maybe"), HasSubstr("nesterov=maybe is not a boolean"));
  EXPECT_THAT(refusal("sgd", "nesterov=true"), HasSubstr("nesterov needs a momentum"));
  EXPECT_THAT(refusal("sgd", "momentum=0.1,momentum=0.2"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("sgd", "weight_decay=0.1"), HasSubstr("--weight_decay"));
  EXPECT_THAT(refusal("adamw_torch", "momentum=0.9"), HasSubstr("it has: none"));
  EXPECT_THAT(refusal("adagrad", "eps=0"), HasSubstr("eps=0 must be positive"));
  EXPECT_THAT(refusal("adagrad", "eps=1e-60"), HasSubstr("must be positive in fp32"));
  EXPECT_THAT(refusal("lamb", "max_coeff=0.001"), HasSubstr("max_coeff=0.001 is below"));
  EXPECT_THAT(deepspeed_refusal("OneBitAdam", Json::object()), HasSubstr("optimizer.type 'OneBitAdam'"));
  EXPECT_THAT(deepspeed_refusal("Adam", {{"max_grad_norm", 1}}), HasSubstr("gradient_clipping"));
  EXPECT_THAT(deepspeed_refusal("Lamb", {{"amsgrad", true}}), HasSubstr("amsgrad is of Adam and AdamW only"));
  EXPECT_THAT(deepspeed_refusal("Adagrad", {{"amsgrad", true}}), HasSubstr("amsgrad is of Adam and AdamW only"));
  EXPECT_THAT(deepspeed_refusal("Adam", {{"beta", {0.9, 0.999}}}), HasSubstr("did you mean 'betas'"));
  EXPECT_THAT(deepspeed_refusal("Adam", {{"betas", {0.9}}}), HasSubstr("betas has 1 numbers"));
  EXPECT_THAT(deepspeed_refusal("Adam", {{"betas", {0.9, 1.0}}}), HasSubstr("beta2=1 is not in [0, 1)"));
  EXPECT_THAT(deepspeed_refusal("Adam", Json::array()), HasSubstr("JSON object"));
}

// Two tensors in a buffer of several chunks, with the state of any optimizer.
struct Buffer {
  static constexpr int64_t kCount = 3 * kSquaresChunk + 100;
  std::vector<TensorSegment> tensors{{0, 20000, 0.1}, {20032, kCount, 0}};
  std::vector<float> parameters, gradients;
  std::vector<std::vector<float>> states;

  explicit Buffer(const Optimizer& optimizer) : parameters(kCount), gradients(kCount) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = std::sin(0.37F * static_cast<float>(i));
      gradients[i] = std::cos(0.21F * static_cast<float>(i));
    }
    for (const Optimizer::State& state : optimizer.states()) states.emplace_back(parameters.size(), state.initial);
  }
  kernels::FlatWindow window(int64_t begin, int64_t end) {
    kernels::FlatWindow window{.parameters = parameters.data() + begin,
                               .gradients = gradients.data() + begin,
                               .begin = begin,
                               .count = end - begin,
                               .segments = tensors};
    for (size_t i = 0; i < states.size(); ++i) window.states[i] = states[i].data() + begin;
    return window;
  }
  void step(const Optimizer& optimizer, const std::vector<int64_t>& cuts, int64_t number) {
    const kernels::UpdateStep step{.learning_rate = 0.01, .number = number};
    const auto for_each_window = [&](auto&& visit) {
      for (size_t i = cuts.size() - 1; i > 0; --i) visit(window(cuts[i - 1], cuts[i]));
    };
    if (!optimizer.needs_trust_ratios()) return for_each_window([&](auto w) { optimizer.update(w, step); });
    std::vector<kernels::LambSums> sums(static_cast<size_t>(kernels::num_lamb_sums(tensors)));
    for_each_window([&](auto w) { optimizer.prepare(w, step, sums); });
    const std::vector<double> ratios = optimizer.trust_ratios(tensors, sums);
    for_each_window([&](auto w) { optimizer.apply(w, step, ratios); });
  }
};

TEST(Optimizer, UpdatesABufferInAnyWindows) {
  for (const char* name : {"adamw", "sgd", "adagrad", "lion", "lamb"}) {
    const Optimizer optimizer(optimizer_settings({.name = name}));
    Buffer whole(optimizer);
    Buffer windows(optimizer);
    for (int64_t number = 1; number <= 2; ++number) {
      whole.step(optimizer, {0, Buffer::kCount}, number);
      windows.step(optimizer, {0, kSquaresChunk, 3 * kSquaresChunk, Buffer::kCount}, number);
    }
    EXPECT_EQ(whole.parameters, windows.parameters) << name;
    EXPECT_EQ(whole.states, windows.states) << name;
    EXPECT_NE(whole.parameters, Buffer(optimizer).parameters) << name;
  }
}

TEST(Optimizer, TakesTheBetasOfASchedule) {
  const Optimizer own(optimizer_settings({.name = "adamw", .betas = {0.5, 0.6}}));
  const Optimizer other(optimizer_settings({.name = "adamw"}));
  Buffer want(own);
  Buffer got(other);
  const kernels::UpdateStep step{.learning_rate = 0.01, .number = 2};
  own.update(want.window(0, Buffer::kCount), step);
  other.update(got.window(0, Buffer::kCount), step, Betas{0.5, 0.6});
  EXPECT_EQ(want.states, got.states);
  const Optimizer sgd(optimizer_settings({.name = "sgd"}));
  EXPECT_FALSE(sgd.has_betas());
  EXPECT_THROW(sgd.update(got.window(0, 10), step, Betas{}), Error);
}

TEST(Optimizer, AnswersOnlyTheCallsOfItsRule) {
  const Optimizer lamb(optimizer_settings({.name = "lamb"}));
  const Optimizer lion(optimizer_settings({.name = "lion"}));
  Buffer buffer(lamb);
  EXPECT_THROW(lamb.update(buffer.window(0, 10), {}), Error);
  EXPECT_THROW((void)lion.trust_ratios({}, {}), Error);
}

}  // namespace
}  // namespace strake::optim::optimizer_test
