#include "strake/tasks/estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "strake/comm/shared_memory.h"
#include "strake/core/error.h"
#include "strake/core/memory.h"
#include "strake/models/gpus.h"
#include "strake/monitor/number_text.h"
#include "strake/tasks/estimated_model.h"
#include "strake/tasks/masked_lm_config.h"
#include "strake/tasks/memory_report.h"
#include "strake/tasks/sharding_flags.h"
#include "strake/tensors/cuda_libtorch.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/training_flops.h"

namespace strake::tasks {
namespace {

void print_run(std::ostream& out, const PlannedRun& run, const std::string& model) {
  const bool is_threads = run.placement == training::RankPlacement::kThreads;
  out << fmt::format("{} with {} parameters, {}; {} rank{}{}; micro-batches of {} sequences, {} tokens\n\n", model,
                     monitor::count_text(run.model.num_parameters()), run.options.precision_text(), run.num_ranks,
                     run.num_ranks == 1 ? "" : "s",
                     run.num_ranks == 1 ? ""
                     : is_threads       ? " as threads"
                                        : " as processes",
                     run.batch.sequences, monitor::count_text(run.batch.tokens));
  if (run.model.num_trained_parameters() < run.model.num_parameters()) {
    out << training::describe_trainable(run.model) << "\n\n";
  }
}

// Arithmetic and communication of a step.
void print_step(std::ostream& out, const PlannedRun& run) {
  const auto row = [&](const char* name, const std::string& value) {
    out << fmt::format("  {:<26} {:>12}\n", name, value);
  };
  const double sequences = sequences_of_step(run);
  const double batches = sequences / static_cast<double>(run.batch.sequences);
  out << "an optimizer step\n";
  row("sequences", monitor::count_text(std::llround(sequences)));
  row("tokens", monitor::count_text(std::llround(static_cast<double>(run.batch.tokens) * batches)));
  row("model FLOP, all ranks", monitor::scaled_text(training::TrainingFlops(run.model)(run.batch) * batches));
  if (run.num_ranks > 1) {
    const auto bytes = training::communicated_bytes(request_of(run));
    row("MiB sent by a rank", fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)));
  }
  row("MiB of disk a checkpoint", fmt::format("{:.1f}", static_cast<double>(checkpoint_bytes(run)) / (1 << 20)));
}

// Sequences of a batch, all of which have the mean length.
struct Sequences {
  const models::Model& model;
  double length;
  int64_t longest;
};

models::BatchShape batch_of(const char* flag, int64_t sequences, const Sequences& of) {
  const double length = of.length;
  const double tokens = std::ceil(static_cast<double>(sequences) * length);
  require(tokens <= INT32_MAX, ErrorKind::kUsage, "--{} {}: a batch of {:.0f} tokens is too large", flag, sequences,
          tokens);
  return {.tokens = static_cast<int64_t>(tokens),
          .sequences = sequences,
          .squared_lengths = static_cast<double>(sequences) * length * length,
          .longest = of.longest,
          .targets = sequences * of.model.num_targets(std::llround(length))};
}

// A run, with what it refers to.
struct Plan {
  EstimatedModel subject;
  PlannedRun run;
  MemoryLimits limits;
  std::vector<std::string> notices;  // of --deepspeed and --fsdp
};

int64_t ranks_per_machine(const EstimateConfig& config, const LaunchedRanks& ranks) {
  if (config.ranks_per_machine > 0) return config.ranks_per_machine;
  if (ranks.are_several()) return std::min<int64_t>(config.train.ranks, ranks.most_on_a_machine());
  return config.train.ranks;
}

// Of another machine, which a flag speaks of, no more is known than that.
MemoryLimits limits_of(const EstimateConfig& given) {
  const bool is_on_gpus = given.train.trains_on_gpus();
  if (given.memory_limit > 0) {
    return {{static_cast<int64_t>(given.memory_limit * (int64_t{1} << 30)), "--memory_limit",
             is_on_gpus ? MemoryLimit::Of::kGpu : MemoryLimit::Of::kMachine}};
  }
  MemoryLimits limits = memory_limits();
  if (!is_on_gpus) return limits;
  try {
    models::open_gpus();
  } catch (Error& error) {
    error.add_context("--device cuda without --memory_limit, which says how much memory a GPU has");
    throw;
  }
  limits.insert(limits.begin(), {tensors::gpu_memory(0).total, "the memory of GPU 0", MemoryLimit::Of::kGpu});
  return limits;
}

// Tokens of the longest sequence.
int64_t longest_sequence(const EstimateConfig& config, const EstimatedModel& subject) {
  const int64_t longest = config.max_seq_length > 0 ? config.max_seq_length : subject.default_length;
  require(longest <= subject.max_length, ErrorKind::kUsage, "--max_seq_length {} is more than the model's {} positions",
          longest, subject.max_length);
  return longest;
}

// Tokens of a sequence.
double mean_length(const EstimateConfig& config, int64_t longest) {
  const double length = config.mean_length > 0 ? config.mean_length : static_cast<double>(longest);
  require(length >= 1 && length <= static_cast<double>(longest), ErrorKind::kUsage,
          "--mean_length {} is not in [1, {}], the longest sequence", length, longest);
  return length;
}

// Processes that are there have tried; of others it is what this one might.
bool shares_memory(const EstimateConfig& given, const LaunchedRanks& launched, int64_t per_machine) {
  if (per_machine < given.train.ranks) return false;
  if (launched.are_several()) return launched.comm().shares_memory();
  return given.processes && !comm::reason_not_to_share_memory();
}

Plan make_plan(const EstimateConfig& given, const LaunchedRanks& launched) {
  given.validate();
  require(given.processes || !launched.are_several(), ErrorKind::kUsage,
          "--processes false and ranks that were started as processes contradict each other");
  TrainConfig config = given.train;
  config.given = given.given;
  EstimatedModel subject = estimated_model(config);
  training::freeze_parameters(*subject.model, config.training.frozen);
  const int64_t per_machine = ranks_per_machine(given, launched);
  ShardingRequest sharding = apply_sharding_flags(config, {.ranks = {.world = config.ranks, .per_node = per_machine},
                                                           .hidden_size = subject.hidden_size,
                                                           .total_steps = {}});
  const training::TrainingOptions& options = config.training;
  options.validate();
  const int64_t longest = longest_sequence(given, subject);
  const double length = mean_length(given, longest);
  const models::Model& model = *subject.model;
  const Sequences sequences{.model = model, .length = length, .longest = longest};
  const auto micro_batch = [sequences](const training::TrainingOptions& of) {
    return batch_of("per_device_train_batch_size", of.per_device_train_batch_size, sequences);
  };
  const auto evaluation_batch = [sequences](int64_t count) {
    return batch_of("per_device_eval_batch_size", count, sequences);
  };
  // What may throw, before the plan is made: GCC 12 destroys an aggregate's parts twice where a later one throws.
  const models::BatchShape batch = micro_batch(options);
  const models::BatchShape evaluation = evaluation_batch(given.per_device_eval_batch_size);
  MemoryLimits limits = limits_of(given);
  return {
      .subject = std::move(subject),
      .run = {.model = model,
              .options = options,
              .batches = {.training = micro_batch, .evaluation = evaluation_batch},
              .batch = batch,
              .evaluation = evaluation,
              .num_ranks = static_cast<int>(config.ranks),
              .ranks_per_machine = static_cast<int>(per_machine),
              .placement = given.processes ? training::RankPlacement::kProcesses : training::RankPlacement::kThreads,
              .shares_memory = shares_memory(given, launched, per_machine),
              .stages = sharding.stages,
              .device = config.planned_device()},
      .limits = std::move(limits),
      .notices = std::move(sharding.notices)};
}

void print_recommendation(std::ostream& out, const PlannedRun& run, const MemoryLimits& limits) {
  const auto fit = cheapest_fit(run, limits);
  print_limits(out, limits);
  if (fit) out << fmt::format("recommended: {}\n", fit->name);
}

}  // namespace

void EstimateConfig::validate() const {
  const TrainTask task = train.train_task();
  const int sources = static_cast<int>(!train.model_name_or_path.empty()) +
                      static_cast<int>(!train.config_name.empty()) + static_cast<int>(!train.model_type.empty());
  require(sources == 1, ErrorKind::kUsage,
          "say which model: one of --model_name_or_path, --config_name and, for language models, --model_type");
  const bool may_be_new = task == TrainTask::kCausalLm || task == TrainTask::kMaskedLm;
  require(may_be_new || (train.model_type.empty() && train.config_overrides.empty()), ErrorKind::kUsage,
          "--model_type and --config_overrides belong to --task causal-lm and masked-lm");
  require_known_model_type(train);
  require(task == TrainTask::kMaskedLm || !given.contains("mlm_probability"), ErrorKind::kUsage,
          "--mlm_probability {} belongs to --task masked-lm", train.mlm_probability);
  require_mlm_probability(train.mlm_probability);
  require(max_seq_length >= 0, ErrorKind::kUsage, "--max_seq_length {} is negative", max_seq_length);
  require(mean_length >= 0, ErrorKind::kUsage, "--mean_length {} is neither 0 nor a number of tokens", mean_length);
  require(per_device_eval_batch_size >= 0, ErrorKind::kUsage, "--per_device_eval_batch_size {} is negative",
          per_device_eval_batch_size);
  require(memory_limit >= 0 && memory_limit <= 1 << 20, ErrorKind::kUsage, "--memory_limit {} is not in [0, {}] GiB",
          memory_limit, 1 << 20);
  speeds.validate();
  require_known_ranks(train);
  require(ranks_per_machine == 0 || processes, ErrorKind::kUsage,
          "--ranks_per_machine {} needs --processes: threads are on one machine", ranks_per_machine);
  require(ranks_per_machine >= 0 && ranks_per_machine <= train.ranks, ErrorKind::kUsage,
          "--ranks_per_machine {} is not in [0, {}], the number of ranks", ranks_per_machine, train.ranks);
  check_sharding_flags(train);
  train.deepspeed.empty() ? train.training.validate() : train.training.validate_but_updates();
}

EstimateConfig estimate_defaults(const LaunchedRanks& ranks) {
  EstimateConfig config;
  if (!ranks.are_several()) return config;
  config.train.ranks = ranks.place().size;
  config.processes = true;
  return config;
}

void estimate(const EstimateConfig& config, LaunchedRanks& ranks, std::ostream& results) {
  keep_freed_memory();
  tensors::track_tensor_memory();  // and what comes with it, as in training: huge pages
  std::ostream nowhere(nullptr);
  std::ostream& out = ranks.speaks() ? results : nowhere;
  std::optional<Plan> plan;
  std::optional<RunVariant> asked;
  ranks.agree([&] {
    plan.emplace(make_plan(config, ranks));
    asked = plan_of(plan->run);
  });
  const PlannedRun& run = plan->run;
  for (const std::string& notice : plan->notices) out << notice << "\n";
  print_run(out, run, plan->subject.name);
  print_memory(out, run, *asked);
  out << "\n";
  print_step(out, run);
  out << "\n";
  out.flush();  // measuring takes a moment
  const auto measure = [&] { return find_speeds(run, config.speeds, ranks); };
  const RunSpeeds speeds = ranks.are_several() ? end_all_on_error(ranks.comm(), measure) : measure();
  ranks.agree([&] {
    if (!ranks.speaks()) return;
    print_time(out, run, speeds);
    out << "\nall stages\n";
    print_variants(out, run, plan->limits, speeds.rank());
    out << "\n";
    print_recommendation(out, run, plan->limits);
    out << "Training data, which is not known here, comes on top; so does the time of reading, evaluating and "
           "saving.\n";
    out.flush();
    require_fit(run, *asked, plan->limits);
  });
}

}  // namespace strake::tasks
