#include "strake/optim/deepspeed_schedules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "strake/optim/schedule_arguments.h"

// Update number `step` uses what DeepSpeed sets at last_batch_iteration = step - 1, where -1 is before the first step
// of its scheduler. Every formula keeps DeepSpeed's order of operations (deepspeed/runtime/lr_schedules.py).
namespace strake::optim {
namespace {

int64_t positive_count(const Arguments& arguments, const char* key, int64_t fallback) {
  const int64_t value = arguments.optional_count(key).value_or(fallback);
  require(value > 0, ErrorKind::kConfig, "{}: {}={} must be positive", arguments.source(), key, value);
  return value;
}

// `asked` by --warmup_steps or --warmup_ratio; 0: nothing is.
int64_t warmup_steps(const Arguments& arguments, int64_t asked) {
  constexpr int64_t kDefault = 1000;
  const std::optional<int64_t> own = arguments.optional_count("warmup_num_steps");
  require(!own || *own > 0, ErrorKind::kConfig, "{}: warmup_num_steps=0 must be positive", arguments.source());
  require(!own || asked == 0 || *own == asked, ErrorKind::kConfig,
          "{}: warmup_num_steps={} and a warm-up of {} steps (--warmup_steps, --warmup_ratio) contradict each other",
          arguments.source(), own.value_or(0), asked);
  return own.value_or(asked > 0 ? asked : kDefault);
}

void refuse_warmup(const ScheduleOptions& options) {
  require(options.warmup_steps == 0, ErrorKind::kConfig,
          "lr_scheduler_type {} has no warm-up: leave out --warmup_steps and --warmup_ratio, which make it {} steps",
          options.type, options.warmup_steps);
}

// Rises from 0 to 1 in `steps` iterations.
struct Rise {
  int64_t steps;
  bool is_logarithmic;

  Rise(const Arguments& arguments, int64_t asked_steps)
      : steps(std::max<int64_t>(2, warmup_steps(arguments, asked_steps))),
        is_logarithmic(arguments.choice("warmup_type", "log", std::array<std::string, 2>{"log", "linear"}) == "log") {}

  double at(int64_t iteration) const {
    if (!is_logarithmic) return static_cast<double>(iteration) / static_cast<double>(steps);
    return 1.0 / std::log(static_cast<double>(steps)) * std::log(static_cast<double>(iteration + 1));
  }
};

int64_t total_num_steps(const Arguments& arguments) {
  arguments.require_key("total_num_steps");
  return *arguments.optional_count("total_num_steps");
}

// From `lowest` to `highest` in the warm-up, then share(iteration) of the way.
template <typename Share>
ScheduleCourse warm_up(const Rise& rise, double lowest, double highest, const Share& share) {
  return {.rate = [=, delta = highest - lowest](int64_t step) {
    const int64_t iteration = step - 1;
    if (iteration < 0) return lowest;
    return lowest + delta * (iteration < rise.steps ? rise.at(iteration) : share(iteration));
  }};
}

// One cycle of learning rate and momentum, and the decay that follows.
struct Cycle {
  double first, second, total;         // iterations
  double first_stairs, second_stairs;  // 0: continuous
  double min_rate, max_rate, rate_decay;
  double min_momentum, max_momentum, momentum_decay;
  double decay_interval;  // iterations; 0: no decay

  explicit Cycle(const Arguments& arguments)
      : first(arguments.at_least_zero("cycle_first_step_size", 2000)),
        second(arguments.at_least_zero("cycle_second_step_size", first)),
        total(first + second),
        first_stairs(static_cast<double>(arguments.optional_count("cycle_first_stair_count").value_or(0))),
        second_stairs(static_cast<double>(
            arguments.optional_count("cycle_second_stair_count").value_or(static_cast<int64_t>(first_stairs)))),
        min_rate(arguments.at_least_zero("cycle_min_lr", 0)),
        max_rate(arguments.at_least_zero("cycle_max_lr", 0)),
        rate_decay(arguments.at_least_zero("decay_lr_rate", 0)),
        min_momentum(arguments.at_least_zero("cycle_min_mom", 0.8)),
        max_momentum(arguments.at_least_zero("cycle_max_mom", 0.9)),
        momentum_decay(arguments.at_least_zero("decay_mom_rate", 0)),
        decay_interval(arguments.at_least_zero("decay_step_size", 0)) {
    arguments.require_key("cycle_min_lr");
    arguments.require_key("cycle_max_lr");
    require(first > 0, ErrorKind::kConfig, "{}: cycle_first_step_size={} must be positive", arguments.source(), first);
    require(min_momentum < 1 && max_momentum < 1, ErrorKind::kConfig,
            "{}: cycle_min_mom={} and cycle_max_mom={} must be below 1", arguments.source(), min_momentum,
            max_momentum);
  }

  // How high the learning rate stands, from 0 to 1.
  double height(int64_t iteration) const {
    const auto batch = static_cast<double>(iteration + 1);
    const double x = 1.0 + batch / total - std::floor(1 + batch / total);
    const double turn = first / total;
    const bool rises = x <= turn;
    const double stairs = rises ? first_stairs : second_stairs;
    if (stairs == 0) return rises ? x / turn : (x - 1) / (turn - 1);
    const double offset = std::fmod(batch, total);
    const double stair = offset <= first ? offset * stairs / first : (total - offset) * stairs / second;
    return std::floor(stair) / stairs;
  }
  bool is_over(int64_t iteration) const { return static_cast<double>(iteration) >= total; }
  double intervals_since(int64_t iteration) const {
    return (static_cast<double>(iteration) - total + 1) / decay_interval;
  }

  double rate(int64_t iteration) const {
    if (iteration < 0) return min_rate;
    if (!is_over(iteration)) return min_rate + (max_rate - min_rate) * height(iteration);
    if (decay_interval == 0 || rate_decay == 0) return min_rate;
    return min_rate / (1 + rate_decay * intervals_since(iteration));
  }
  // Falls where the learning rate rises. DeepSpeed begins with the lowest.
  double momentum(int64_t iteration) const {
    if (iteration < 0) return min_momentum;
    if (!is_over(iteration)) return max_momentum - (max_momentum - min_momentum) * height(iteration);
    if (decay_interval == 0 || momentum_decay == 0) return max_momentum;
    return max_momentum * (1 + momentum_decay * intervals_since(iteration));
  }
};

}  // namespace

ScheduleCourse make_warmup_lr(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const std::optional<double> highest = arguments.optional_number("warmup_max_lr");
  ScheduleCourse course = warm_up(Rise(arguments, options.warmup_steps), arguments.at_least_zero("warmup_min_lr", 0),
                                  highest.value_or(options.learning_rate), [](int64_t) { return 1.0; });
  course.has_own_rates = highest.value_or(options.learning_rate) != options.learning_rate;
  return course;
}

ScheduleCourse make_warmup_decay_lr(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const int64_t total = total_num_steps(arguments);
  const Rise rise(arguments, options.warmup_steps);
  const double highest = arguments.at_least_zero("warmup_max_lr", 0.001);
  ScheduleCourse course = warm_up(rise, arguments.at_least_zero("warmup_min_lr", 0), highest,
                                  [total, warmup = rise.steps](int64_t iteration) {
                                    const auto window = static_cast<double>(std::max<int64_t>(1, total - warmup));
                                    return std::max(0.0, static_cast<double>(total - iteration) / window);
                                  });
  course.has_own_rates = highest != options.learning_rate;
  return course;
}

ScheduleCourse make_warmup_cosine_lr(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const int64_t total = total_num_steps(arguments);
  const Rise rise(arguments, options.warmup_steps);
  const double start = arguments.at_least_zero("warmup_min_ratio", 0);
  const double floor = arguments.at_least_zero("cos_min_ratio", 0.0001);
  return {.rate = [=, peak = options.learning_rate](int64_t step) {
    const int64_t iteration = step - 1;
    if (iteration < 0) return 0.0;
    if (iteration < rise.steps) return peak * (start + rise.at(iteration) * (1.0 - start));
    const auto window = static_cast<double>(std::max<int64_t>(1, total - rise.steps));
    const double progress = std::min(1.0, static_cast<double>(iteration - rise.steps + 1) / window);
    return peak * std::max(0.0, floor + (1.0 - floor) * ((1 + std::cos(std::numbers::pi * progress)) / 2));
  }};
}

ScheduleCourse make_one_cycle(const ScheduleOptions& options) {
  constexpr double kSecondBeta = 0.99;  // DeepSpeed's
  const Arguments arguments(options);
  const Cycle cycle(arguments);
  refuse_warmup(options);
  ScheduleCourse course{.rate = [cycle](int64_t step) { return cycle.rate(step - 1); }, .has_own_rates = true};
  if (!arguments.boolean("cycle_momentum", true)) return course;
  const double last = cycle.momentum(options.total_steps - 1);
  require(last < 1, ErrorKind::kConfig, "{}: decay_mom_rate={} takes the momentum to {} by the last step",
          arguments.source(), cycle.momentum_decay, last);
  course.betas = [cycle](int64_t step) { return Betas{cycle.momentum(step - 1), kSecondBeta}; };
  return course;
}

ScheduleCourse make_lr_range_test(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const double lowest = arguments.at_least_zero("lr_range_test_min_lr", 1e-3);
  const auto size = static_cast<double>(positive_count(arguments, "lr_range_test_step_size", 2000));
  const double rate = arguments.at_least_zero("lr_range_test_step_rate", 1);
  const bool staircase = arguments.boolean("lr_range_test_staircase", false);
  refuse_warmup(options);
  return {.rate =
              [=](int64_t step) {
                const double interval = static_cast<double>(step) / size;
                return lowest * (1 + rate * (staircase ? std::floor(interval) : interval));
              },
          .has_own_rates = true};
}

}  // namespace strake::optim
