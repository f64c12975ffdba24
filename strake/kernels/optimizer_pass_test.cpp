// All optimizer rules: against torch, against each other's instruction sets, and for any cut of the buffer.
#include "strake/kernels/optimizer_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/kernels/lamb.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::optimizer_pass_test {
namespace {

using Windows = std::vector<FlatWindow>;  // of one buffer

struct Rule {
  std::string name;
  std::function<void(const Windows&, const UpdateStep&, Isa)> update;
  double initial_state = 0;
};

template <class Arguments>
Rule elementwise(std::string name, void (*update)(const FlatWindow&, const UpdateStep&, const Arguments&, Isa),
                 const Arguments& arguments, double initial_state = 0) {
  return {std::move(name),
          [=](const Windows& windows, const UpdateStep& step, Isa isa) {
            for (const FlatWindow& window : windows) update(window, step, arguments, isa);
          },
          initial_state};
}

Rule lamb_rule(const Lamb& rule) {
  return {"lamb", [rule](const Windows& windows, const UpdateStep& step, Isa isa) {
            const auto tensors = windows.front().segments;
            std::vector<LambSums> sums(static_cast<size_t>(num_lamb_sums(tensors)));
            for (const FlatWindow& window : windows) lamb_moments(window, step, rule, sums, isa);
            const std::vector<double> coefficients = lamb_coefficients(tensors, sums, rule);
            for (const FlatWindow& window : windows) lamb_apply(window, step, rule, coefficients, isa);
          }};
}

std::vector<Rule> elementwise_rules() {
  return {elementwise("adamw", &adam, Adam{.beta2 = 0.98, .epsilon = 1e-6}),
          elementwise("adam", &adam, Adam{.beta2 = 0.98, .epsilon = 1e-6, .weight_decay = WeightDecay::kInGradient}),
          elementwise("adam, AMSGrad", &adam, Adam{.beta2 = 0.5, .epsilon = 1e-6, .amsgrad = true}),
          elementwise("adam without bias correction", &adam, Adam{.beta2 = 0.98, .bias_correction = false}),
          elementwise("adagrad", &adagrad, Adagrad{.epsilon = 1e-6, .lr_decay = 0.1}, 0.2),
          elementwise("lion", &lion, Lion{}),
          elementwise("sgd", &sgd, Sgd{}),
          elementwise("sgd with momentum", &sgd, Sgd{.momentum = 0.9, .dampening = 0.2}),
          elementwise("sgd, Nesterov", &sgd, Sgd{.momentum = 0.9, .nesterov = true})};
}

// Parameters, gradients and states of one buffer: gradients of type G, parameters of type M, states of type T.
template <class G, class M = float, class T = M>
struct Buffer {
  std::vector<M> parameters;
  std::vector<G> gradients;
  std::vector<T> first, second, third;
  std::vector<BFloat16> bfloat16;
  std::vector<Half> half;

  Buffer(int64_t count, double initial_state)
      : parameters(random_values<M>(count, 1)),
        gradients(random_values<G>(count, 4, 0.1F)),
        first(parameters.size(), from_float<T>(static_cast<float>(initial_state))),
        second(first),
        third(first) {
    for (const M value : parameters) {
      bfloat16.push_back(to_bfloat16(to_float(value)));
      half.push_back(to_half(to_float(value)));
    }
  }

  // Elements [begin, end).
  FlatWindow window(std::span<const TensorSegment> segments, int64_t begin, int64_t end) {
    FlatWindow window{.parameters = parameters.data() + begin,
                      .gradients = gradients.data() + begin,
                      .states = {first.data() + begin, second.data() + begin, third.data() + begin},
                      .begin = begin,
                      .count = end - begin,
                      .segments = segments};
    if constexpr (!std::is_same_v<M, float>) {
      window.rounded = {};
    } else if constexpr (std::is_same_v<G, Half>) {
      window.rounded = half.data() + begin;
    } else {
      window.rounded = bfloat16.data() + begin;
    }
    return window;
  }
  Windows cut(std::span<const TensorSegment> segments, const std::vector<int64_t>& cuts) {
    Windows windows;
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      windows.push_back(window(segments, begin, end));
      begin = end;
    }
    return windows;
  }
  bool operator==(const Buffer& other) const {
    return same_bits(parameters, other.parameters) && same_bits(gradients, other.gradients) &&
           same_bits(first, other.first) && same_bits(second, other.second) && same_bits(third, other.third) &&
           same_bits(bfloat16, other.bfloat16) && same_bits(half, other.half);
  }
};

constexpr int64_t kCount = 50021;  // several grains of 16384 and an odd end
const std::vector<TensorSegment> kSegments{
    {3, 17001, 0.1}, {17001, 17020, 0.0}, {17020, 17020, 0.7}, {20000, 49999, 0.3}, {50000, 50021, 0.2}};

constexpr UpdateStep step_number(int64_t number, AfterUse gradients = AfterUse::kKeep) {
  return {.learning_rate = 0.01, .number = number, .gradient_scale = 0.5F, .gradients = gradients};
}

template <class G, class M = float, class T = M>
Buffer<G, M, T> after_steps(const Rule& rule, const std::vector<int64_t>& cuts, Isa isa) {
  Buffer<G, M, T> buffer(kCount, rule.initial_state);
  for (int64_t step = 1; step <= 3; ++step) {
    const AfterUse gradients = step == 3 ? AfterUse::kZero : AfterUse::kKeep;
    rule.update(buffer.cut(kSegments, cuts), step_number(step, gradients), isa);
  }
  return buffer;
}

template <class G>
void expect_bits_of_the_reference() {
  for (const Rule& rule : elementwise_rules()) {
    const Buffer<G> want = after_steps<G>(rule, {kCount}, Isa::kReference);
    for (const Isa isa : usable_rungs()) {
      EXPECT_TRUE(after_steps<G>(rule, {kCount}, isa) == want) << rule.name << " " << to_string(isa);
    }
    for (size_t i = 0; i < want.parameters.size(); ++i) {
      ASSERT_TRUE(std::isfinite(want.parameters[i])) << rule.name << " " << i;
      ASSERT_EQ(to_float(want.gradients[i]), 0.0F) << rule.name << " " << i;
      if constexpr (std::is_same_v<G, Half>) {
        ASSERT_EQ(want.half[i].bits, to_half(want.parameters[i]).bits) << rule.name << " " << i;
      } else {
        ASSERT_EQ(want.bfloat16[i].bits, to_bfloat16(want.parameters[i]).bits) << rule.name << " " << i;
      }
    }
  }
}

TEST(OptimizerPass, HasTheBitsOfTheReferenceInEveryRung) {
  expect_bits_of_the_reference<float>();
  expect_bits_of_the_reference<BFloat16>();
  expect_bits_of_the_reference<Half>();
}

TEST(OptimizerPass, HasTheSameBitsForAnyNumberOfThreadsAndWindows) {
  std::vector<Rule> rules = elementwise_rules();
  rules.push_back(lamb_rule({}));
  for (const Rule& rule : rules) {
    for (const Isa isa : usable_rungs()) {
      const WithThreads one(1);
      const Buffer<float> want = after_steps<float>(rule, {kCount}, isa);
      for (const int threads : {2, 3}) {
        const WithThreads several(threads);
        EXPECT_TRUE(after_steps<float>(rule, {kCount}, isa) == want) << rule.name << " " << to_string(isa);
        EXPECT_TRUE(after_steps<float>(rule, {16384, 32768, 32768, kCount}, isa) == want) << rule.name;
        if (rule.name == "lamb") continue;  // its sums are cut at multiples of 16384
        EXPECT_TRUE(after_steps<float>(rule, {1, 17010, 21003, 50020, kCount}, isa) == want) << rule.name;
      }
    }
  }
}

template <class T>
std::vector<float> widened(const std::vector<T>& values) {
  std::vector<float> wide;
  for (const T value : values) wide.push_back(to_float(value));
  return wide;
}

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> narrow;
  for (const float value : values) narrow.push_back(from_float<T>(value));
  return narrow;
}

// Parameters and gradients of type M, states of type T.
template <class M, class T>
void expect_fp32_rounded_once_a_step(const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    for (const Isa isa : usable_rungs()) {
      Buffer<M, M, T> buffer(kCount, rule.initial_state);
      for (int64_t step = 1; step <= 3; ++step) {
        Buffer<M> wide(kCount, 0);
        wide.parameters = widened(buffer.parameters);
        wide.first = widened(buffer.first);
        wide.second = widened(buffer.second);
        wide.third = widened(buffer.third);
        rule.update({wide.window(kSegments, 0, kCount)}, step_number(step), isa);
        rule.update({buffer.window(kSegments, 0, kCount)}, step_number(step), isa);
        EXPECT_TRUE(same_bits(buffer.parameters, rounded<M>(wide.parameters))) << rule.name << " " << to_string(isa);
        EXPECT_TRUE(same_bits(buffer.first, rounded<T>(wide.first))) << rule.name << " " << to_string(isa);
        EXPECT_TRUE(same_bits(buffer.second, rounded<T>(wide.second))) << rule.name << " " << to_string(isa);
        EXPECT_TRUE(same_bits(buffer.third, rounded<T>(wide.third))) << rule.name << " " << to_string(isa);
      }
    }
  }
}

std::vector<Rule> adam_rules() {
  std::vector<Rule> rules = elementwise_rules();
  std::erase_if(rules, [](const Rule& rule) { return !rule.name.starts_with("adam"); });
  return rules;
}

TEST(OptimizerPass, InSixteenBitsIsThatOfFp32RoundedOnceAStep) {
  expect_fp32_rounded_once_a_step<BFloat16, BFloat16>(elementwise_rules());
  expect_fp32_rounded_once_a_step<Half, float>(adam_rules());
}

template <class M, class T>
void expect_same_bits_for_any_rung_and_windows(const std::vector<Rule>& rules) {
  const auto after = [](const Rule& rule, const std::vector<int64_t>& cuts, Isa isa) {
    return after_steps<M, M, T>(rule, cuts, isa);
  };
  for (const Rule& rule : rules) {
    const auto reference = after(rule, {kCount}, Isa::kReference);
    for (const Isa isa : usable_rungs()) {
      const auto want = after(rule, {kCount}, isa);
      EXPECT_TRUE(after(rule, {16384, 32768, kCount}, isa) == want) << rule.name;
      if (rule.name == "lamb") continue;  // its sums are cut at multiples of 16384, and not of one order in all rungs
      EXPECT_TRUE(after(rule, {1, 17010, 21003, 50020, kCount}, isa) == want) << rule.name;
      EXPECT_TRUE(want == reference) << rule.name << " " << to_string(isa);
    }
  }
}

TEST(OptimizerPass, InSixteenBitsHasTheSameBitsForAnyRungAndWindows) {
  std::vector<Rule> rules = elementwise_rules();
  rules.push_back(lamb_rule({}));
  expect_same_bits_for_any_rung_and_windows<BFloat16, BFloat16>(rules);
  expect_same_bits_for_any_rung_and_windows<Half, float>(adam_rules());
}

TEST(OptimizerPass, InFp16RoundsParametersThatDoNotFitToInfinity) {
  for (const Isa isa : usable_rungs()) {
    Buffer<Half, Half, float> buffer(20, 0);
    std::ranges::fill(buffer.parameters, to_half(65504));  // the largest number
    std::ranges::fill(buffer.gradients, to_half(-1));
    adam(buffer.window({}, 0, 20), {.learning_rate = 16, .number = 1}, {}, isa);
    EXPECT_TRUE(std::isinf(to_float(buffer.parameters[19]))) << to_string(isa);
    EXPECT_NEAR(buffer.second[19], 0.001F, 1e-8) << "moments have more range: 1 - beta2 times the square";
  }
}

TEST(OptimizerPass, InBFloat16LosesSmallUpdates) {
  for (const Isa isa : usable_rungs()) {
    Buffer<BFloat16, BFloat16> buffer(20, 0);
    std::ranges::fill(buffer.parameters, to_bfloat16(1));
    std::ranges::fill(buffer.gradients, to_bfloat16(1));
    const auto step = [&](double rate) {
      sgd(buffer.window({}, 0, 20), {.learning_rate = rate, .number = 1}, {}, isa);
      return to_float(buffer.parameters[19]);
    };
    EXPECT_EQ(step(0.0019), 1.0F) << "the number below 1 is 1 - 2^-8: less than half of the way there";
    EXPECT_EQ(step(0.0020), 0.99609375F);
  }
}

TEST(OptimizerPass, InFp16IsForAdamWithFp32States) {
  Buffer<Half, Half, float> buffer(100, 0);
  const FlatWindow window = buffer.window({}, 0, 100);
  EXPECT_NO_THROW(adam(window, step_number(1), {}));
  EXPECT_THROW(adagrad(window, step_number(1), {}), Error);
  EXPECT_THROW(lion(window, step_number(1), {}), Error);
  EXPECT_THROW(sgd(window, step_number(1), {}), Error);
  std::vector<LambSums> sums;
  EXPECT_THROW(lamb_moments(window, step_number(1), {}, sums), Error);
  EXPECT_THROW(lamb_apply(window, step_number(1), {}, {}), Error);
  FlatWindow mixed = window;
  mixed.gradients = buffer.first.data();
  EXPECT_THROW(adam(mixed, step_number(1), {}), Error);
  mixed = window;
  mixed.rounded = buffer.half.data();
  EXPECT_THROW(adam(mixed, step_number(1), {}), Error);
}

TEST(OptimizerPass, RefusesToMixBFloat16WithOtherTypes) {
  Buffer<BFloat16, BFloat16> buffer(100, 0);
  Buffer<BFloat16> wide(100, 0);
  const auto refuses = [](const FlatWindow& window) { EXPECT_THROW(lion(window, step_number(1), {}), Error); };
  FlatWindow window = buffer.window({}, 0, 100);
  EXPECT_NO_THROW(lion(window, step_number(1), {}));
  window.states[0] = wide.first.data();
  refuses(window);
  window = buffer.window({}, 0, 100);
  window.gradients = wide.parameters.data();
  refuses(window);
  window = buffer.window({}, 0, 100);
  window.rounded = wide.bfloat16.data();
  refuses(window);
}

TEST(OptimizerPass, KeepsTheLargestSecondMomentWithAmsgradOnly) {
  for (const Isa isa : usable_rungs()) {
    for (const bool amsgrad : {false, true}) {
      Buffer<float> buffer(20, 0);
      const Adam rule{.beta2 = 0.5, .amsgrad = amsgrad};
      for (const auto& [number, gradient, largest] : {std::tuple{1, 2.0F, 2.0F}, {2, 0.0F, 2.0F}, {3, 4.0F, 8.5F}}) {
        std::ranges::fill(buffer.gradients, gradient);
        adam(buffer.window({}, 0, 20), {.learning_rate = 0.01, .number = number}, rule, isa);
        EXPECT_EQ(buffer.third[19], amsgrad ? largest : 0) << to_string(isa) << " " << number;
      }
      EXPECT_EQ(buffer.second[19], 8.5F);
    }
  }
}

// A table of which a step has used some rows: elements rest as long as nothing has reached them.
template <class G, class M, class T>
Buffer<G, M, T> after_sparse_steps(const Rule& rule, double weight_decay, Isa isa) {
  const std::vector<TensorSegment> segments{{0, kCount, weight_decay}};
  Buffer<G, M, T> buffer(kCount, rule.initial_state);
  const std::vector<G> all = buffer.gradients;
  for (int64_t i = 0; i < kCount; i += 41) {
    buffer.parameters[i] = from_float<M>(-0.0F);
    buffer.bfloat16[i] = to_bfloat16(-0.0F);
    buffer.half[i] = to_half(-0.0F);
  }
  for (int64_t step = 1; step <= 3; ++step) {
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t row = i / 37;
      const bool is_used = row % 5 == step || row % 7 == 0;
      buffer.gradients[i] = is_used ? all[i] : from_float<G>(row % 2 == 0 ? 0.0F : -0.0F);
    }
    if (step == 2) buffer.first[40] = from_float<T>(-0.0F);
    rule.update({buffer.window(segments, 0, kCount)}, step_number(step, AfterUse::kZero), isa);
  }
  return buffer;
}

template <class G, class M = float, class T = M>
void expect_bits_of_the_reference_where_elements_rest(const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    for (const double weight_decay : {0.0, 0.1}) {
      const auto want = after_sparse_steps<G, M, T>(rule, weight_decay, Isa::kReference);
      for (const Isa isa : usable_rungs()) {
        EXPECT_TRUE((after_sparse_steps<G, M, T>(rule, weight_decay, isa) == want))
            << rule.name << " " << weight_decay << " " << to_string(isa);
      }
    }
  }
}

TEST(OptimizerPass, LeavesElementsAtRestWithTheBitsOfTheReference) {
  expect_bits_of_the_reference_where_elements_rest<float>(elementwise_rules());
  expect_bits_of_the_reference_where_elements_rest<BFloat16>(elementwise_rules());
  expect_bits_of_the_reference_where_elements_rest<BFloat16, BFloat16>(elementwise_rules());
  expect_bits_of_the_reference_where_elements_rest<Half, Half, float>(adam_rules());
}

TEST(OptimizerPass, UpdatesBuffersShorterThanAVector) {
  for (const Rule& rule : elementwise_rules()) {
    for (const int64_t count : {0, 1, 7, 8, 9, 15, 16, 17, 33}) {
      const std::vector<TensorSegment> segments{{0, count, 0.1}};
      Buffer<Half> want(count + 3, rule.initial_state);
      rule.update({want.window(segments, 0, count)}, step_number(1), Isa::kReference);
      for (const Isa isa : usable_rungs()) {
        Buffer<Half> got(count + 3, rule.initial_state);
        rule.update({got.window(segments, 0, count)}, step_number(1), isa);
        EXPECT_TRUE(got == want) << rule.name << " " << to_string(isa) << " " << count;
      }
    }
  }
}

TEST(OptimizerPass, LeavesZerosWithoutGradientAlone) {
  std::vector<Rule> rules = elementwise_rules();
  rules.push_back(lamb_rule({}));
  for (const Rule& rule : rules) {
    for (const Isa isa : usable_rungs()) {
      Buffer<float> buffer(40, rule.initial_state);
      std::fill(buffer.parameters.begin() + 5, buffer.parameters.end(), 0.0F);
      std::fill(buffer.gradients.begin() + 5, buffer.gradients.end(), 0.0F);
      const std::vector<TensorSegment> segments{{0, 5, 0.1}, {32, 40, 0.1}};
      rule.update({buffer.window(segments, 0, 40)}, step_number(1), isa);
      for (size_t i = 5; i < 40; ++i) EXPECT_EQ(buffer.parameters[i], 0.0F) << rule.name << " " << i;
      EXPECT_NE(buffer.parameters[0], (Buffer<float>(40, 0).parameters[0])) << rule.name;
    }
  }
}

TEST(OptimizerPass, LetsNanThrough) {
  std::vector<Rule> rules = elementwise_rules();
  for (const Rule& rule : rules) {
    for (const Isa isa : usable_rungs()) {
      Buffer<float> buffer(100, rule.initial_state);
      buffer.gradients[20] = std::numeric_limits<float>::quiet_NaN();
      rule.update({buffer.window(kSegments, 0, 100)}, step_number(1), isa);
      EXPECT_TRUE(std::isnan(buffer.parameters[20])) << rule.name << " " << to_string(isa);
      EXPECT_EQ(buffer.bfloat16[20].bits, 0x7FC0) << rule.name;
      EXPECT_TRUE(std::isfinite(buffer.parameters[19]) && std::isfinite(buffer.parameters[21])) << rule.name;
    }
  }
}

TEST(OptimizerPass, RefusesNonsense) {
  Buffer<float> buffer(100, 0);
  EXPECT_THROW(adam(buffer.window({}, 0, 100), step_number(0), {}), Error);
  const std::vector<TensorSegment> overlapping{{0, 10, 0.1}, {9, 20, 0.1}};
  EXPECT_THROW(adam(buffer.window(overlapping, 0, 100), step_number(1), {}), Error);
  FlatWindow window = buffer.window({}, 0, 100);
  window.states[1] = {};
  EXPECT_THROW(adam(window, step_number(1), {}), Error);
  EXPECT_NO_THROW(lion(window, step_number(1), {}));
  window = buffer.window({}, 0, 100);
  window.states[2] = {};
  EXPECT_THROW(adam(window, step_number(1), {.amsgrad = true}), Error);
  EXPECT_NO_THROW(adam(window, step_number(1), {}));
  window.states[0] = {};
  EXPECT_THROW(sgd(window, step_number(1), {.momentum = 0.9}), Error);
  EXPECT_NO_THROW(sgd(window, step_number(1), {}));
}

Rule rule_of(const Json& expected) {
  const std::string name = expected.at("rule");
  const Json& arguments = expected.at("arguments");
  const double beta1 = arguments.contains("betas") ? arguments["betas"][0].get<double>() : 0;
  const double beta2 = arguments.contains("betas") ? arguments["betas"][1].get<double>() : 0;
  const double epsilon = arguments.value("eps", 0.0);
  if (name == "lion") return elementwise(name, &lion, Lion{beta1, beta2});
  if (name == "sgd") {
    return elementwise(
        name, &sgd,
        Sgd{arguments.value("momentum", 0.0), arguments.value("dampening", 0.0), arguments.value("nesterov", false)});
  }
  if (name == "adagrad") {
    return elementwise(name, &adagrad, Adagrad{epsilon, arguments.at("lr_decay")},
                       arguments.at("initial_accumulator_value"));
  }
  if (name == "lamb") {
    return lamb_rule(
        {beta1, beta2, epsilon, arguments.at("bias_correction"), arguments.at("max_coeff"), arguments.at("min_coeff")});
  }
  const WeightDecay decay = name == "adamw" ? WeightDecay::kDecoupled : WeightDecay::kInGradient;
  return elementwise(name, &adam, Adam{beta1, beta2, epsilon, true, decay, arguments.value("amsgrad", false)});
}

TEST(OptimizerPass, FollowsTorchAndDeepSpeedOverSteps) {
  // Made by tools/make_optimizer_fixture.py.
  const Json fixture =
      read_json(std::filesystem::path(STRAKE_SOURCE_DIR) / "strake/kernels/testdata/optimizers.json", kMaxConfigBytes);
  const int64_t size = fixture.at("tensor_size");
  const std::vector<TensorSegment> tensors{{0, size, fixture.at("weight_decay")[0]},
                                           {size, 2 * size, fixture.at("weight_decay")[1]}};
  const auto rates = fixture.at("learning_rates").get<std::vector<double>>();
  ASSERT_GE(fixture.at("cases").size(), 10U);
  for (const Json& expected : fixture.at("cases")) {
    const Rule rule = rule_of(expected);
    for (const Isa isa : usable_rungs()) {
      Buffer<float> buffer(2 * size, rule.initial_state);
      buffer.parameters = fixture.at("parameters").get<std::vector<float>>();
      for (size_t step = 0; step < rates.size(); ++step) {
        buffer.gradients = fixture.at("gradients")[step].get<std::vector<float>>();
        rule.update({buffer.window(tensors, 0, 2 * size)},
                    {.learning_rate = rates[step],
                     .number = static_cast<int64_t>(step) + 1,
                     .gradient_scale = fixture.at("scale")},
                    isa);
      }
      // The fixture is in double; a dozen fp32 roundings a step of values near 1.
      expect_close(buffer.parameters, expected.at("parameters").get<std::vector<double>>(), 3e-7, 3e-7,
                   expected.at("rule").get<std::string>() + " " + expected.at("arguments").dump() + to_string(isa));
    }
  }
}

}  // namespace
}  // namespace strake::kernels::optimizer_pass_test
