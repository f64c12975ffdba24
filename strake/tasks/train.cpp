#include "strake/tasks/train.h"

#include <chrono>
#include <memory>
#include <optional>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/comm/mpi_comm.h"
#include "strake/comm/shared_memory.h"
#include "strake/comm/thread_comm.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/memory.h"
#include "strake/core/termination.h"
#include "strake/core/threads.h"
#include "strake/models/gpus.h"
#include "strake/models/weights.h"
#include "strake/tasks/disk_checks.h"
#include "strake/tasks/launched_ranks.h"
#include "strake/tasks/memory_report.h"
#include "strake/tasks/rank_agreement.h"
#include "strake/tasks/run_folder.h"
#include "strake/tasks/run_log.h"
#include "strake/tasks/sharding_flags.h"
#include "strake/tasks/train_job.h"
#include "strake/tasks/train_rank.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/cuda_libtorch.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/device.h"
#include "strake/training/run_checkpoint.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<TrainJob> make_job(const TrainConfig& config, int workers) {
  switch (config.train_task()) {
    case TrainTask::kTokenClassification:
      return make_token_classifier_job(config, workers);
    case TrainTask::kQuestionAnswering:
      return make_question_answerer_job(config, workers);
    case TrainTask::kCausalLm:
      return make_causal_lm_job(config, workers);
    case TrainTask::kMaskedLm:
      return make_masked_lm_job(config, workers);
    case TrainTask::kSequenceClassification:
      break;
  }
  return make_classifier_job(config, workers);
}

// What is written is to be read again.
void check_configuration(const TrainJob& job) {
  const size_t bytes = job.config_json().size();
  require(
      bytes <= kMaxConfigBytes, ErrorKind::kData,
      "{}: its config.json, which names the labels, has {} bytes, and at most {} are read: fewer labels, or shorter "
      "names",
      job.describe(), bytes, kMaxConfigBytes);
}

// What the schedule finds wrong once the number of steps is known.
void check_schedule(const TrainConfig& config, int64_t total_steps, ShardingRequest& request) {
  try {
    const optim::LearningRateSchedule schedule(config.training.schedule_options(total_steps));
    if (schedule.cycles_betas() && config.given.contains("adam_beta1")) {
      request.notices.push_back(
          fmt::format("--adam_beta1 has no effect: {} cycles it", config.training.lr_scheduler_type));
    }
    if (!schedule.has_rates_of_its_own() || !config.given.contains("learning_rate")) return;
  } catch (Error& error) {
    if (!config.deepspeed.empty()) error.add_context("as " + request.source + " has it");
    throw;
  }
  request.notices.push_back(fmt::format("--learning_rate {} has no effect: {} has rates of its own",
                                        config.training.learning_rate, config.training.lr_scheduler_type));
}

ShardingRequest choose_sharding(TrainConfig& config, const RankCount& ranks, const TrainJob& job) {
  const auto total_steps = [&](const training::TrainingOptions& options) {
    return training::run_length(options, job.train_data(), ranks.world).total_steps;
  };
  ShardingRequest request =
      apply_sharding_flags(config, {.ranks = ranks, .hidden_size = job.hidden_size(), .total_steps = total_steps});
  config.training.validate();
  request.length = training::run_length(config.training, job.train_data(), ranks.world);
  const int64_t steps = request.length.total_steps;
  config.training.step_intervals(steps);
  check_schedule(config, steps, request);
  if (config.flops_profiler && config.flops_profiler->profile_step > steps) {
    request.notices.push_back(fmt::format("flops_profiler.profile_step {} has no effect: the run has {} steps",
                                          config.flops_profiler->profile_step, steps));
  }
  check_offload_folder(config.training.sharding.offload, request.source);
  for (const std::string& notice : request.notices) log::info("{}", notice);
  if (log::rank() == 0) {
    for (const std::string& line : flags_without_effect(config)) log::warning("{}", line);
  }
  if (!request.table.empty()) log::info("settings of --deepspeed:\n{}", request.table);
  if (!config.deepspeed.empty() || !config.fsdp.empty()) {
    log::info("sharding {}{}", config.training.sharding.stage.name,
              config.training.gradient_checkpointing ? ", activations are computed again" : "");
  }
  return request;
}

// The ranks of a run: threads of this process, or processes of which this is one.
struct Launch {
  std::optional<comm::RankEnvironment> launched;
  std::unique_ptr<comm::Comm> mpi;  // null: threads
  int num_ranks = 1;
  int threads = 1;  // of a rank
  std::chrono::seconds patience{};

  int ranks_here() const { return launched ? launched->local_size : num_ranks; }
  bool is_first() const { return !mpi || mpi->rank() == 0; }
};

void require_gpus(const Launch& launch) {
  // While one rank's thread waits in NCCL, another's must not wait for it to load a kernel ("Lazy Loading" in NVIDIA's
  // guide of CUDA).
  if (!launch.launched && launch.num_ranks > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int gpus = 0;
  try {
    gpus = models::open_gpus();
  } catch (Error& error) {
    error.add_context("--device cuda");
    throw;
  }
  const bool has_own = launch.launched && gpus == 1;
  require(has_own || launch.ranks_here() <= gpus || training::ranks_may_share_gpus(), ErrorKind::kUsage,
          "--device cuda: {} ranks on this machine, and {} GPU{} that a process sees: show each process all of them, "
          "or its own alone (CUDA_VISIBLE_DEVICES)",
          launch.ranks_here(), gpus, gpus == 1 ? "" : "s");
}

void log_environment(const TrainConfig& config, const TrainJob& job, const Launch& launch) {
  log::info("{}; {} training sequences, {} tokens", job.describe(), job.train_data().size(),
            job.train_data().total_tokens());
  const models::Model& model = job.model();
  if (model.num_trained_parameters() < model.num_parameters()) log::info("{}", training::describe_trainable(model));
  log::info("{} rank{} of {} thread{}{}; kernels {}; matrix products {}; {}", launch.num_ranks,
            launch.num_ranks == 1 ? "" : "s", launch.threads, launch.threads == 1 ? "" : "s",
            launch.num_ranks > 1 && launch.mpi && launch.mpi->shares_memory() ? ", which have memory in common" : "",
            describe_cpu(), matrix_products(config), config.training.precision_text());
  if (!config.given.contains("device") && models::may_have_gpus()) {
    log::info("computes on the processor; --device cuda: on this machine's GPUs");
  }
}

void warn_of_crowded_cores(const TrainConfig& config, const Launch& launch) {
  const int cores = available_cores();
  if (config.trains_on_gpus() || launch.mpi || launch.num_ranks <= cores) return;
  log::warning("{} ranks share {} core{}: fewer of them are as fast and take less memory", launch.num_ranks, cores,
               cores == 1 ? "" : "s");
}

// Other kernels round otherwise: such a run has not the bits of any other one.
void warn_of_other_kernels(const TrainConfig& config, const Launch& launch) {
  comm::Comm& ranks = *launch.mpi;
  std::optional<int> gpu;
  if (config.trains_on_gpus()) gpu = training::gpu_of_rank(launch.launched->local_rank);
  const std::string own = kernels_of(config, gpu);
  const std::string of_first = comm::broadcast_text(ranks, own, 0);
  if (own == of_first) return;
  log::warning(
      "this rank computes with {}, rank 0 with {}, which rounds otherwise: the run's bits depend on its layout{}", own,
      of_first, gpu ? "" : ". STRAKE_ISA and STRAKE_MATMUL make ranks alike");
}

// Of this machine, and of its GPU that has least free.
MemoryLimits limits_of(const TrainConfig& config, const Launch& launch) {
  MemoryLimits limits = memory_limits();
  if (!config.trains_on_gpus()) return limits;
  // A process looks at its own only: asking takes memory there.
  const int first = launch.launched ? launch.launched->local_rank : 0;
  const int count = launch.launched ? 1 : launch.num_ranks;
  MemoryLimit least{.bytes = INT64_MAX, .source = {}, .of = MemoryLimit::Of::kGpu};
  for (int rank = first; rank < first + count; ++rank) {
    const int gpu = training::gpu_of_rank(rank);
    const int64_t free = tensors::gpu_memory(gpu).free;
    if (free < least.bytes) least = {free, fmt::format("free memory of GPU {}", gpu), MemoryLimit::Of::kGpu};
  }
  limits.insert(limits.begin(), least);
  return limits;
}

// Before anything is changed on disk: what the run's memory will be, and an error if this machine lacks it.
void check_memory(const TrainConfig& config, const TrainJob& job, const Launch& launch,
                  const ShardingRequest& sharding) {
  const auto micro_batch = [&](const training::TrainingOptions& options) {
    const int64_t steps = training::run_length(options, job.train_data(), launch.num_ranks).total_steps;
    return largest_batch(job.model(), job.train_data(), options, {.ranks = launch.num_ranks, .steps = steps});
  };
  const auto evaluation_batch = [&](int64_t sequences) {
    return training::largest_evaluation_batch(job.model(), job.evaluation_data(), sequences);
  };
  PlannedRun run{.model = job.model(),
                 .options = config.training,
                 .batches = {.training = micro_batch, .evaluation = evaluation_batch},
                 .batch = largest_batch(job.model(), job.train_data(), config.training,
                                        {.ranks = launch.num_ranks, .steps = sharding.length.total_steps}),
                 .num_ranks = launch.num_ranks,
                 .ranks_per_machine = launch.ranks_here(),
                 .placement = launch.mpi ? training::RankPlacement::kProcesses : training::RankPlacement::kThreads,
                 .shares_memory = launch.mpi && launch.mpi->shares_memory(),
                 .data_bytes = bytes_of(job.train_data()),
                 .stages = sharding.stages,
                 .device = config.planned_device()};
  if (run.options.async_save) {
    run.options.async_save = training::saves_before_the_end(config.training, sharding.length);
  }
  if (job.has_evaluation()) {
    run.evaluation = evaluation_batch(job.eval_batch_size());
    run.evaluation_rows = job.evaluation_data().size();
    run.outputs_of_row = job.outputs_of_row();
    run.data_bytes += bytes_of(job.evaluation_data()) + job.evaluation_bytes();
  }
  const RunVariant variant = plan_of(run);
  const MemoryLimits limits = limits_of(config, launch);
  if (config.dry_run && log::rank() == 0) tell_plan(run, variant, limits);
  require_fit(run, variant, limits);
  check_offload_room(variant, sharding.source);
  check_output_room(config, run, variant);
}

// What a run looks at beside its settings and its data.
void check_start(const TrainConfig& config, const TrainJob& job, const Launch& launch) {
  const std::optional<fs::path> resume_from = find_resume(config);
  if (launch.is_first()) check_output_folder(config, resume_from);
  if (resume_from) {
    training::require_same_run(job.model(), run_fingerprint(config, job, launch.num_ranks), *resume_from);
    log::info("the run would go on from {}", resume_from->string());
    return;
  }
  if (job.weights().empty()) return;
  checkpoint::verify_model_files(job.weights());
  const tensors::CheckpointFiles files(job.weights());
  try {
    models::check_tensors(
        {.model = job.model(), .files = files, .ignores_mismatched_sizes = job.ignores_mismatched_sizes()});
  } catch (Error& error) {
    error.add_context("while loading " + job.weights().string());
    throw;
  }
}

Launch launch_ranks(const TrainConfig& config) {
  Launch launch{.launched = find_launched_job(), .mpi = nullptr, .patience = std::chrono::seconds(config.ddp_timeout)};
  auto& launched = launch.launched;
  require(!launched || config.ranks == 1, ErrorKind::kUsage,
          "--ranks {} and {} ranks started by {} contradict each other", config.ranks, launched ? launched->size : 1,
          launched ? launched->launcher : "");
  comm::reason_not_to_share_memory();  // an error if its variable makes no sense
  if (launched) launch.mpi = comm::make_mpi_comm(*launched, launch.patience);
  launch.num_ranks = launch.mpi ? launch.mpi->size() : static_cast<int>(config.ranks);
  launch.threads = launched ? launched->num_threads() : threads_per_rank(launch.ranks_here());
  log::set_rank(launch.mpi ? launch.mpi->rank() : 0);
  tensors::set_compute_threads(launch.threads);
  return launch;
}

// Collective among ranks that are processes.
RunStart make_start(const TrainConfig& config, const TrainJob& job, const Launch& launch) {
  comm::Comm* const mpi = launch.mpi.get();
  RunStart start{.first_rank = launch.launched ? launch.launched->rank - launch.launched->local_rank : 0};
  if (launch.is_first()) start.folder = std::make_unique<RunFolder>(config);
  start.resume_from = mpi != nullptr ? find_resume_together(config, *mpi) : find_resume(config);
  if (start.folder) check_output_folder(config, start.resume_from);
  if (!start.resume_from && !job.weights().empty()) checkpoint::verify_model_files(job.weights());
  start.generation_config = read_generation_config(job.weights());
  start.fingerprint = run_fingerprint(config, job, launch.num_ranks);
  if (job.has_evaluation()) start.evaluation = how_evaluated(config, job);
  if (mpi != nullptr) {
    require_alike(course_of_run(config, start.fingerprint, start.evaluation, start.resume_from), *mpi);
  }
  if (config.training.enable_jit_checkpoint) start.termination = std::make_unique<TerminationWatch>();
  return start;
}

training::TrainReport run_ranks(const TrainConfig& config, const TrainJob& job, const RunStart& start,
                                const Launch& launch) {
  if (launch.mpi) return run_rank(config, job, start, *launch.mpi);
  if (launch.num_ranks == 1) {
    comm::SelfComm self;
    return run_rank(config, job, start, self);
  }
  training::TrainReport report;
  const auto run_thread = [&](comm::Comm& comm) {
    training::TrainReport own = run_rank(config, job, start, comm);
    if (comm.rank() == 0) report = std::move(own);
  };
  comm::run_ranks(launch.num_ranks, launch.threads, run_thread, launch.patience);
  return report;
}

training::TrainReport run_job(TrainConfig config, const Launch& launch) {
  if (launch.mpi) require_alike({{"dry_run", config.dry_run}}, *launch.mpi);  // others would wait for one that ends
  if (config.trains_on_gpus()) require_gpus(launch);
  const auto job = make_job(config, launch.mpi ? launch.threads : available_cores());
  check_configuration(*job);
  const RankCount ranks{.world = launch.num_ranks, .per_node = launch.ranks_here()};
  const ShardingRequest sharding = choose_sharding(config, ranks, *job);
  log_environment(config, *job, launch);
  warn_of_crowded_cores(config, launch);
  if (launch.mpi) warn_of_other_kernels(config, launch);
  check_memory(config, *job, launch, sharding);
  if (launch.is_first()) check_output_place(config);
  if (config.dry_run) {
    check_start(config, *job, launch);
    return {};
  }
  RunStart start = make_start(config, *job, launch);
  start.length = sharding.length;
  if (!sharding.record.is_null()) start.sharding_record = json_text(sharding.record, 2) + "\n";
  return run_ranks(config, *job, start, launch);
}

}  // namespace

training::TrainReport train(const TrainConfig& given) {
  keep_freed_memory();
  tensors::track_tensor_memory();
  given.validate();
  log::set_level(log::parse_level(given.log_level));
  Launch launch = launch_ranks(given);
  const auto run = [&] { return run_job(given, launch); };
  training::TrainReport report = launch.mpi ? end_all_on_error(*launch.mpi, run) : run();
  launch.mpi.reset();  // in order, which an error would not be
  if (report.is_interrupted) throw ToldError(Error(ErrorKind::kInterrupted, "SIGTERM"));
  return report;
}

}  // namespace strake::tasks
