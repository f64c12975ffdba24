#include "strake/optim/learning_rate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

#include "strake/core/nearest_name.h"
#include "strake/optim/deepspeed_schedules.h"
#include "strake/optim/schedule_arguments.h"

// Every formula keeps Transformers' order of operations, so that the values agree to the last bits.
namespace strake::optim {
namespace {

using std::numbers::pi;
using Factor = std::function<double(int64_t)>;  // multiplies the peak learning rate

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

// `after(step)` follows a linear rise from 0 to 1.
template <typename After>
Factor with_warmup(int64_t warmup, After after) {
  return [warmup, after](int64_t step) { return step < warmup ? ratio(step, warmup) : after(step); };
}

Factor make_constant(const ScheduleOptions&) {
  return [](int64_t) { return 1.0; };
}

Factor make_constant_with_warmup(const ScheduleOptions& options) {
  return with_warmup(options.warmup_steps, [](int64_t) { return 1.0; });
}

Factor make_linear(const ScheduleOptions& options) {
  return with_warmup(options.warmup_steps, [warmup = options.warmup_steps, total = options.total_steps](int64_t step) {
    return std::max(0.0, ratio(total - step, total - warmup));
  });
}

// Cosine from 1 to `floor`; `cycles` is in whole waves, so 0.5 falls once.
double cosine_to_floor(double progress, double cycles, double floor) {
  const double factor = 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
  return std::max(0.0, factor * (1 - floor) + floor);
}

Factor make_cosine_to(const ScheduleOptions& options, double floor) {
  const double cycles = Arguments(options).at_least_zero("num_cycles", 0.5);
  return with_warmup(options.warmup_steps,
                     [warmup = options.warmup_steps, total = options.total_steps, cycles, floor](int64_t step) {
                       return cosine_to_floor(ratio(step - warmup, total - warmup), cycles, floor);
                     });
}

Factor make_cosine(const ScheduleOptions& options) { return make_cosine_to(options, 0.0); }

Factor make_cosine_with_restarts(const ScheduleOptions& options) {
  const double cycles = Arguments(options).at_least_zero("num_cycles", 1);
  return with_warmup(options.warmup_steps,
                     [warmup = options.warmup_steps, total = options.total_steps, cycles](int64_t step) {
                       const double progress = ratio(step - warmup, total - warmup);
                       if (progress >= 1.0) return 0.0;
                       return std::max(0.0, 0.5 * (1.0 + std::cos(pi * std::fmod(cycles * progress, 1.0))));
                     });
}

Factor make_polynomial(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const double power = arguments.at_least_zero("power", 1.0);
  const double end = arguments.at_least_zero("lr_end", 1e-7);
  const double peak = options.learning_rate;
  require(peak > end, ErrorKind::kConfig, "{}: lr_end={} must be smaller than the learning rate {}", arguments.source(),
          end, peak);
  return with_warmup(options.warmup_steps, [warmup = options.warmup_steps, total = options.total_steps, power, end,
                                            peak](int64_t step) {
    if (step > total || total == warmup) return end / peak;
    const double remaining = 1 - static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
    return ((peak - end) * std::pow(remaining, power) + end) / peak;
  });
}

Factor make_inverse_sqrt(const ScheduleOptions& options) {
  constexpr double kTimescaleWithoutWarmup = 10000;
  const Arguments arguments(options);
  const auto warmup = static_cast<double>(options.warmup_steps);
  const double timescale =
      arguments.optional_number("timescale").value_or(warmup > 0 ? warmup : kTimescaleWithoutWarmup);
  require(timescale > 0, ErrorKind::kConfig, "{}: timescale={} must be positive", arguments.source(), timescale);
  return with_warmup(options.warmup_steps, [warmup, timescale](int64_t step) {
    return 1.0 / std::sqrt((static_cast<double>(step) + (timescale - warmup)) / timescale);
  });
}

// min_lr, or min_lr_rate as a share of the peak.
double min_lr_rate(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const std::optional<double> absolute = arguments.optional_number("min_lr");
  const std::optional<double> relative = arguments.optional_number("min_lr_rate");
  require(absolute.has_value() != relative.has_value(), ErrorKind::kConfig,
          "{}: give exactly one of min_lr and min_lr_rate", arguments.source());
  if (relative) return *relative;
  require(options.learning_rate > 0, ErrorKind::kConfig, "{}: min_lr needs a positive learning rate, not {}",
          arguments.source(), options.learning_rate);
  return *absolute / options.learning_rate;
}

Factor make_cosine_with_min_lr(const ScheduleOptions& options) { return make_cosine_to(options, min_lr_rate(options)); }

// Unlike the others counts updates from 1, so that the first one already moves.
Factor make_cosine_warmup_with_min_lr(const ScheduleOptions& options) {
  const Arguments arguments(options);
  const double floor = min_lr_rate(options);
  const double cycles = arguments.at_least_zero("num_cycles", 0.5);
  const std::optional<double> start = arguments.optional_number("warmup_lr_rate");
  return [warmup = options.warmup_steps, total = options.total_steps, floor, cycles, start](int64_t step) {
    if (step >= warmup) return cosine_to_floor(ratio(step - warmup + 1, total - warmup), cycles, floor);
    if (!start) return ratio(step + 1, warmup);
    return *start + (1.0 - *start) * static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup - 1));
  };
}

// Rise from 0 to 1 over progress 0 to 1.
double stage_rise(const std::string& shape, double progress) {
  if (shape == "cosine") return 0.5 * (1.0 - std::cos(pi * progress));
  if (shape == "1-sqrt") return 1.0 - std::sqrt(1.0 - progress);
  return progress;
}

double stage_fall(const std::string& shape, double progress, double cycles) {
  if (shape == "cosine") return 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
  if (shape == "1-sqrt") return 1.0 - std::sqrt(progress);
  return 1.0 - progress;
}

Factor make_warmup_stable_decay(const ScheduleOptions& options) {
  static const std::array<std::string, 3> kShapes{"linear", "cosine", "1-sqrt"};
  const Arguments arguments(options);
  const int64_t warmup = options.warmup_steps;
  const std::optional<int64_t> decay = arguments.optional_count("num_decay_steps");
  require(decay.has_value(), ErrorKind::kConfig, "{}: num_decay_steps is needed", arguments.source());
  const int64_t stable = arguments.optional_count("num_stable_steps").value_or(options.total_steps - warmup - *decay);
  require(stable >= 0 || options.total_steps == 0, ErrorKind::kConfig,
          "{}: {} warm-up and {} decay steps are more than all {} steps", arguments.source(), warmup, *decay,
          options.total_steps);
  const std::string rise = arguments.choice("warmup_type", "linear", kShapes);
  const std::string fall = arguments.choice("decay_type", "cosine", kShapes);
  const double floor = arguments.at_least_zero("min_lr_ratio", 0);
  const double cycles = arguments.at_least_zero("num_cycles", 0.5);
  return [=, decay = *decay](int64_t step) {
    const auto above_floor = [floor](double factor) { return std::max(0.0, factor * (1.0 - floor) + floor); };
    if (step < warmup) return above_floor(stage_rise(rise, ratio(step, warmup)));
    if (step - warmup < stable) return 1.0;
    if (step - warmup - stable < decay) {
      return above_floor(stage_fall(fall, ratio(step - warmup - stable, decay), cycles));
    }
    return floor;
  };
}

// Rates of Transformers' schedules are shares of the peak.
template <Factor (*kMake)(const ScheduleOptions&)>
ScheduleCourse share_of_peak(const ScheduleOptions& options) {
  return {
      .rate = [peak = options.learning_rate, factor = kMake(options)](int64_t step) { return peak * factor(step); }};
}

struct ScheduleEntry {
  std::string type;
  ScheduleCourse (*make)(const ScheduleOptions&);
  std::vector<std::string> arguments;
};

std::span<const ScheduleEntry> schedules() {
  static const std::vector<ScheduleEntry> kSchedules{
      {"linear", &share_of_peak<make_linear>, {}},
      {"cosine", &share_of_peak<make_cosine>, {"num_cycles"}},
      {"cosine_with_restarts", &share_of_peak<make_cosine_with_restarts>, {"num_cycles"}},
      {"polynomial", &share_of_peak<make_polynomial>, {"lr_end", "power"}},
      {"constant", &share_of_peak<make_constant>, {}},
      {"constant_with_warmup", &share_of_peak<make_constant_with_warmup>, {}},
      {"inverse_sqrt", &share_of_peak<make_inverse_sqrt>, {"timescale"}},
      {"cosine_with_min_lr", &share_of_peak<make_cosine_with_min_lr>, {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr",
       &share_of_peak<make_cosine_warmup_with_min_lr>,
       {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       &share_of_peak<make_warmup_stable_decay>,
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"}},
      {"WarmupLR", &make_warmup_lr, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {"WarmupDecayLR",
       &make_warmup_decay_lr,
       {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {"WarmupCosineLR",
       &make_warmup_cosine_lr,
       {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"}},
      {"OneCycle",
       &make_one_cycle,
       {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
        "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum", "cycle_min_mom",
        "cycle_max_mom", "decay_mom_rate"}},
      {"LRRangeTest",
       &make_lr_range_test,
       {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"}},
  };
  return kSchedules;
}

const ScheduleEntry& find_schedule(const std::string& type) {
  require(type != "reduce_lr_on_plateau" && type != "greedy", ErrorKind::kConfig,
          "lr_scheduler_type '{}' is not supported: its learning rate depends on measured losses", type);
  std::vector<std::string> types;
  for (const ScheduleEntry& entry : schedules()) {
    if (entry.type == type) return entry;
    types.push_back(entry.type);
  }
  fail(ErrorKind::kConfig, "unknown lr_scheduler_type '{}'{}; supported are: {}", printable(type),
       did_you_mean(type, types), fmt::join(types, ", "));
}

void check_arguments(const ScheduleEntry& entry, const ScheduleOptions& options) {
  require(options.kwargs.is_object(), ErrorKind::kConfig, "{} must be a JSON object, not {}", options.kwargs_source,
          printable(options.kwargs.dump()));
  for (const auto& [key, value] : options.kwargs.items()) {
    require(std::ranges::find(entry.arguments, key) != entry.arguments.end(), ErrorKind::kConfig,
            "{}: schedule '{}' has no argument '{}'{}; it has: {}", options.kwargs_source, entry.type, printable(key),
            did_you_mean(key, entry.arguments),
            entry.arguments.empty() ? "none" : fmt::format("{}", fmt::join(entry.arguments, ", ")));
  }
}

}  // namespace

int64_t resolve_warmup_steps(const WarmupOptions& options, int64_t total_steps) {
  constexpr double kMostSteps = 1e15;  // keeps the conversion below exact
  require(options.steps >= 0 && options.steps <= kMostSteps, ErrorKind::kConfig,
          "warmup_steps={} must be a number of steps, or a share of all steps below 1", options.steps);
  require(options.ratio >= 0 && options.ratio <= 1, ErrorKind::kConfig, "warmup_ratio={} must be between 0 and 1",
          options.ratio);
  if (options.steps >= 1) return static_cast<int64_t>(options.steps);
  const double share = options.steps > 0 ? options.steps : options.ratio;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share));
}

LearningRateSchedule::LearningRateSchedule(const ScheduleOptions& options) {
  require(options.learning_rate >= 0 && std::isfinite(options.learning_rate), ErrorKind::kConfig,
          "learning_rate={} must be a number from 0 on", options.learning_rate);
  require(options.warmup_steps >= 0 && options.total_steps >= 0, ErrorKind::kConfig,
          "warm-up steps ({}) and all steps ({}) must be 0 or more", options.warmup_steps, options.total_steps);
  const ScheduleEntry& entry = find_schedule(options.type);
  check_arguments(entry, options);
  course_ = entry.make(options);
}

double LearningRateSchedule::at(int64_t step) const {
  require(step >= 0, ErrorKind::kInternal, "learning rate of step {} was asked for", step);
  return course_.rate(step);
}

std::optional<Betas> LearningRateSchedule::betas_at(int64_t step) const {
  require(step >= 0, ErrorKind::kInternal, "betas of step {} were asked for", step);
  if (!course_.betas) return std::nullopt;
  return course_.betas(step);
}

}  // namespace strake::optim
