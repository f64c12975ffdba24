#include "strake/tasks/train.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/comm/mpi_comm.h"
#include "strake/comm/nccl_comm.h"
#include "strake/comm/thread_comm.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/core/memory.h"
#include "strake/core/termination.h"
#include "strake/core/threads.h"
#include "strake/data/token_file.h"
#include "strake/kernels/cuda/library.h"
#include "strake/models/layers/linear_products.h"
#include "strake/models/weights.h"
#include "strake/tasks/launched_ranks.h"
#include "strake/tasks/memory_report.h"
#include "strake/tasks/precision_file.h"
#include "strake/tasks/rank_agreement.h"
#include "strake/tasks/run_folder.h"
#include "strake/tasks/run_log.h"
#include "strake/tasks/sharding_flags.h"
#include "strake/tasks/train_job.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/device.h"
#include "strake/training/training_flops.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNvmePath = "zero_optimization.offload_optimizer.nvme_path";

void initialize_weights(const models::Model& model, uint64_t seed, training::ShardedParameters& parameters) {
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
    models::initialize_block(*model.blocks()[i], model.initializer_range(), seed, whole);
    parameters.assign(i, whole);
  }
}

void load_weights(const TrainJob& job, uint64_t seed, training::ShardedParameters& parameters) {
  const models::Model& model = job.model();
  if (job.weights().empty()) return initialize_weights(model, seed, parameters);
  const tensors::CheckpointFiles files(job.weights());
  models::LoadReport report;
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
    try {
      models::load_block(*model.blocks()[i], {.model = model, .files = files, .seed = seed}, whole, report);
    } catch (Error& error) {
      error.add_context("while loading " + job.weights().string());
      throw;
    }
    parameters.assign(i, whole);
  }
  if (!report.initialized.empty()) log::info("new, to be trained: {}", fmt::join(report.initialized, ", "));
  const auto unused = models::unused_names(model, files);
  if (!unused.empty()) log::info("not used from the checkpoint: {}", fmt::join(unused, ", "));
}

// How a run begins, beside its data.
struct Start {
  RunFolder* folder;  // of rank 0
  std::optional<fs::path> resume_from;
  Json fingerprint;                         // what must not change between start and resume
  std::optional<uint32_t> evaluation_data;  // its fingerprint
  int first_rank = 0;                       // of this machine
  const TerminationWatch* termination;      // nullptr: SIGTERM ends the process
  std::string sharding_record;              // ds_config_resolved.json, if not empty
};

// Gives the calling rank its GPU. Returns the group that knows GPUs, if there are several ranks.
std::unique_ptr<comm::Comm> take_gpu(int gpu, comm::Comm& ranks) {
  training::use_gpu(gpu);
  if (ranks.size() == 1) return nullptr;
  return comm::make_nccl_comm({.host = ranks,
                               .nccl = comm::nccl(),
                               .cuda = kernels::cuda::library(),
                               .device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(gpu))});
}

training::TrainReport run_rank(const TrainConfig& config, const TrainJob& job, const Start& start, comm::Comm& ranks) {
  training::TrainingOptions options = config.training;
  std::unique_ptr<comm::Comm> nccl;
  if (config.trains_on_gpus()) {
    options.gpu = ranks.rank() - start.first_rank;
    nccl = take_gpu(*options.gpu, ranks);
  }
  comm::Comm& comm = nccl ? *nccl : ranks;
  training::ShardedParameters parameters(job.model(), comm, options);
  if (!start.resume_from) load_weights(job, config.training.seed, parameters);
  std::unique_ptr<RunLog> run_log;
  if (comm.rank() == 0) run_log = std::make_unique<RunLog>(config);
  const auto evaluate = [&] { return job.evaluate(parameters, comm); };
  training::TrainerInputs inputs{
      .model = job.model(),
      .train = job.train_data(),
      .evaluate = job.has_evaluation() ? std::function<training::Evaluation()>(evaluate) : nullptr,
      .evaluation_data = start.evaluation_data,
      .training_flops = training::TrainingFlops(job.model()),
      .output_dir = config.output_dir,
      .resume_from = start.resume_from,
      .fingerprint = start.fingerprint,
      .write_companions =
          [&](const fs::path& folder) {
            std::error_code ignored;
            fs::remove(folder / kPrecisionFile, ignored);  // it tells of an earlier model
            job.tokenizer().save(folder);
            write_file_atomically(folder / "config.json", job.config_json());
          },
      .listener = run_log.get()};
  if (start.termination != nullptr) inputs.is_asked_to_end = [&] { return start.termination->is_requested(); };
  training::Trainer trainer(std::move(inputs), parameters, comm, options);
  if (run_log) {
    start.folder->start(start.resume_from);
    if (!start.sharding_record.empty()) {
      write_file_atomically(fs::path(config.output_dir) / "ds_config_resolved.json", start.sharding_record);
    }
    run_log->open(start.resume_from);
  }
  const training::TrainReport report = trainer.run();
  if (run_log) run_log->close(report);
  return report;
}

void require_gpus(int ranks_here) {
  const int gpus = training::open_gpus();
  require(ranks_here <= gpus, ErrorKind::kUsage, "--device cuda: {} ranks on this machine, which has {} GPU{}",
          ranks_here, gpus, gpus == 1 ? "" : "s");
}

std::unique_ptr<TrainJob> make_job(const TrainConfig& config, int workers) {
  return config.trains_language_model() ? make_causal_lm_job(config, workers) : make_classifier_job(config, workers);
}

// Before any work is done, and for --dry_run too.
void check_offload_folder(const training::OffloadOptions& offload, const std::string& source) {
  if (!offload.optimizer && !offload.parameters) return;
  require(fs::is_directory(offload.folder), ErrorKind::kConfig, "{}: {}: {} {}, expected a folder on the disk to use",
          source, kNvmePath, offload.folder.string(), fs::exists(offload.folder) ? "is no folder" : "does not exist");
  try {
    const ScratchFile probe(offload.folder, 0, {.depth = 1, .engine = ScratchFile::Engine::kThreads});
  } catch (Error& error) {
    error.add_context(fmt::format("{}: {}", source, kNvmePath));
    throw;
  }
}

void check_offload_room(const RunVariant& variant, const std::string& source) {
  if (variant.disk_bytes == 0) return;
  const fs::path& folder = variant.options.sharding.offload.folder;
  const auto free = static_cast<int64_t>(std::min<uintmax_t>(fs::space(folder).available, INT64_MAX));
  constexpr double kMebibyte = 1 << 20;
  require(variant.disk_bytes <= free, ErrorKind::kIo,
          "{}: {}: scratch files of {:.1f} MiB for the ranks of a machine do not fit in {}, which has {:.1f} MiB free",
          source, kNvmePath, static_cast<double>(variant.disk_bytes) / kMebibyte, folder.string(),
          static_cast<double>(free) / kMebibyte);
}

// What the schedule finds wrong once the number of steps is known.
void check_schedule(const TrainConfig& config, int64_t total_steps, ShardingRequest& request) {
  try {
    const optim::LearningRateSchedule schedule(config.training.schedule_options(total_steps));
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
    return training::total_steps(options, job.train_data(), ranks.world);
  };
  ShardingRequest request =
      apply_sharding_flags(config, {.ranks = ranks, .hidden_size = job.hidden_size(), .total_steps = total_steps});
  config.training.validate();
  const int64_t steps = total_steps(config.training);
  config.training.step_intervals(steps);
  check_schedule(config, steps, request);
  if (config.trains_on_gpus()) training::require_gpus_can(config.training);
  check_offload_folder(config.training.sharding.offload, request.source);
  for (const std::string& notice : request.notices) log::info("{}", notice);
  if (!request.table.empty()) log::info("settings of --deepspeed:\n{}", request.table);
  if (!config.deepspeed.empty() || !config.fsdp.empty()) {
    log::info("sharding {}{}", config.training.sharding.stage.name,
              config.training.gradient_checkpointing ? ", activations are computed again" : "");
  }
  return request;
}

const char* matrix_products(const TrainConfig& config) {
  if (config.trains_on_gpus()) return "of libtorch on GPUs";
  return to_string(models::layers::matmul_library());
}

void log_environment(const TrainConfig& config, const TrainJob& job, int num_ranks, int threads) {
  log::info("{}; {} training sequences, {} tokens", job.describe(), job.train_data().size(),
            job.train_data().total_tokens());
  const models::Model& model = job.model();
  if (model.num_trained_parameters() < model.num_parameters()) log::info("{}", training::describe_trainable(model));
  log::info("{} rank{} of {} thread{}; kernels {}; matrix products {}; {}", num_ranks, num_ranks == 1 ? "" : "s",
            threads, threads == 1 ? "" : "s", describe_cpu(), matrix_products(config),
            config.training.precision_text());
}

// Before anything is changed on disk: what the run's memory will be, and an error if this machine lacks it.
// Of GPUs' memory nothing is known beforehand yet.
void check_memory(const TrainConfig& config, const TrainJob& job, const RankCount& ranks,
                  training::RankPlacement placement, const ShardingRequest& sharding) {
  if (config.trains_on_gpus()) return log::info("the memory of a run on GPUs is not planned yet");
  const auto micro_batch = [&](const training::TrainingOptions& options) {
    return largest_batch(job.train_data(), options, ranks.world);
  };
  const auto evaluation_batch = [&](int64_t sequences) {
    return training::largest_evaluation_batch(job.evaluation_data(), sequences);
  };
  PlannedRun run{.model = job.model(),
                 .options = config.training,
                 .batches = {.training = micro_batch, .evaluation = evaluation_batch},
                 .batch = micro_batch(config.training),
                 .num_ranks = static_cast<int>(ranks.world),
                 .ranks_per_machine = static_cast<int>(ranks.per_node),
                 .placement = placement,
                 .data_bytes = bytes_of(job.train_data()),
                 .stages = sharding.stages};
  if (job.has_evaluation()) {
    run.evaluation = evaluation_batch(job.eval_batch_size());
    run.data_bytes += bytes_of(job.evaluation_data());
  }
  const RunVariant variant = plan_of(run);
  const MemoryLimit machine = memory_limit();
  if (config.dry_run && log::rank() == 0) tell_plan(run, variant, machine);
  require_fit(run, variant, machine);
  check_offload_room(variant, sharding.source);
}

// What a run looks at beside its settings and its data.
void check_start(const TrainConfig& config, const TrainJob& job) {
  if (find_resume(config) || job.weights().empty()) return;
  checkpoint::verify_model_files(job.weights());
  const tensors::CheckpointFiles files(job.weights());
  try {
    models::check_tensors({.model = job.model(), .files = files});
  } catch (Error& error) {
    error.add_context("while loading " + job.weights().string());
    throw;
  }
}

}  // namespace

std::shared_ptr<const tokenizers::Tokenizer> load_tokenizer(const TrainConfig& config) {
  return tokenizers::Tokenizer::load(config.tokenizer_name.empty() ? config.model_name_or_path : config.tokenizer_name);
}

bool are_token_files(const std::vector<std::string>& paths) {
  return !paths.empty() && fs::path(paths.front()).extension() == ".parquet" && data::is_token_file(paths.front());
}

void require_known_tokens(const data::TokenDataset& dataset, int64_t vocab_size, const std::string& path) {
  require(dataset.max_token_id() < vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model", path,
          dataset.max_token_id(), vocab_size);
}

void require_known_ranks(const TrainConfig& config) {
  require(config.ranks >= 1 && config.ranks <= 4096, ErrorKind::kUsage, "--ranks {} is not in [1, 4096]", config.ranks);
}

void require_known_model_type(const TrainConfig& config) {
  require(config.model_type.empty() || config.model_type == "gpt2", ErrorKind::kUsage,
          "--model_type {}: only gpt2 is there", config.model_type);
}

bool TrainConfig::trains_on_gpus() const {
  require(device == "cpu" || device == "cuda", ErrorKind::kUsage, "--device {} is neither cpu nor cuda", device);
  return device == "cuda";
}

bool TrainConfig::trains_language_model() const {
  require(task == "sequence-classification" || task == "causal-lm", ErrorKind::kUsage,
          "--task {} is neither sequence-classification nor causal-lm", task);
  return task == "causal-lm";
}

void TrainConfig::validate() const {
  trains_language_model() ? validate_language_model() : validate_classifier();
  require(!train_file.empty(), ErrorKind::kUsage, "--train_file names no file");
  require(!output_dir.empty(), ErrorKind::kUsage, "--output_dir names no folder");
  require_known_ranks(*this);
  constexpr int64_t kMostSeconds = 1'000'000'000;
  require(ddp_timeout >= 1 && ddp_timeout <= kMostSeconds, ErrorKind::kUsage, "--ddp_timeout {} is not in [1, {}]",
          ddp_timeout, kMostSeconds);
  require(report_to == "none" || report_to.empty(), ErrorKind::kUsage,
          "--report_to {}: only none is there yet; metrics.jsonl has every number", report_to);
  require(validation_file.empty() == (training.eval_strategy == "no"), ErrorKind::kUsage,
          "--validation_file and --eval_strategy {} contradict each other: {}", training.eval_strategy,
          validation_file.empty() ? "evaluation needs a file" : "say steps or epoch, or leave the file out");
  require(training.max_tokens_per_batch == 0 || !given.contains("per_device_train_batch_size"), ErrorKind::kUsage,
          "--max_tokens_per_batch {} and --per_device_train_batch_size {} contradict each other: a batch has as many "
          "sequences as fit",
          training.max_tokens_per_batch, training.per_device_train_batch_size);
  require(!overwrite_output_dir || !wants_resume(*this), ErrorKind::kUsage,
          "--overwrite_output_dir and --resume_from_checkpoint {} contradict each other", resume_from_checkpoint);
  check_sharding_flags(*this);
  training.validate();
  if (trains_on_gpus()) training::require_gpus_can(training);
}

void TrainConfig::validate_classifier() const {
  require(!model_name_or_path.empty(), ErrorKind::kUsage, "--model_name_or_path names no folder");
  require(!text.label_column.empty(), ErrorKind::kUsage, "--label_column is empty");
  require(text.max_seq_length > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive", text.max_seq_length);
  const auto refuse = [](const auto& value, const auto& unset, const char* flag) {
    require(value == unset, ErrorKind::kUsage, "--{} {} belongs to --task causal-lm", flag, value);
  };
  refuse(block_size, 0, "block_size");
  refuse(model_type, "", "model_type");
  refuse(config_name, "", "config_name");
  refuse(config_overrides, "", "config_overrides");
  parse_problem_type_flag(problem_type);
}

void TrainConfig::validate_language_model() const {
  const TrainConfig defaults;
  const auto refuse = [](const auto& value, const auto& unset, const char* flag) {
    require(value == unset, ErrorKind::kUsage, "--{} {} does not belong to --task causal-lm", flag, value);
  };
  refuse(text.text_pair_column, "", "text_pair_column");
  refuse(text.label_column, defaults.text.label_column, "label_column");
  refuse(problem_type, "", "problem_type");
  require(text.max_seq_length == defaults.text.max_seq_length, ErrorKind::kUsage,
          "--max_seq_length {}: with --task causal-lm it is --block_size, and longer documents are cut into pieces",
          text.max_seq_length);
  require(block_size == 0 || block_size >= 2, ErrorKind::kUsage,
          "--block_size {} is neither 0 nor at least 2: a single token predicts nothing", block_size);
  const bool from_scratch = !model_type.empty() || !config_name.empty();
  require(from_scratch != !model_name_or_path.empty(), ErrorKind::kUsage,
          "--task causal-lm needs either --model_name_or_path, to go on training, or --model_type or --config_name, to "
          "train from scratch");
  require(model_type.empty() || config_name.empty(), ErrorKind::kUsage,
          "--model_type {} and --config_name {} contradict each other", model_type, config_name);
  require_known_model_type(*this);
  require(config_overrides.empty() || from_scratch, ErrorKind::kUsage,
          "--config_overrides {} would contradict the weights of --model_name_or_path {}", config_overrides,
          model_name_or_path);
  require(!from_scratch || !tokenizer_name.empty(), ErrorKind::kUsage,
          "--tokenizer_name names no folder, which a model from scratch needs");
}

training::TrainReport train(const TrainConfig& given) {
  keep_freed_memory();
  tensors::track_tensor_memory();
  given.validate();
  TrainConfig config = given;
  log::set_level(log::parse_level(config.log_level));
  const auto launched = find_launched_job();
  require(!launched || config.ranks == 1, ErrorKind::kUsage,
          "--ranks {} and {} ranks started by {} contradict each other", config.ranks, launched ? launched->size : 1,
          launched ? launched->launcher : "");
  const std::chrono::seconds patience(config.ddp_timeout);
  std::unique_ptr<comm::Comm> mpi;
  if (launched) mpi = comm::make_mpi_comm(*launched, patience);
  const int num_ranks = launched ? mpi->size() : static_cast<int>(config.ranks);
  const int threads = threads_per_rank(launched ? launched->local_size : num_ranks);
  log::set_rank(mpi ? mpi->rank() : 0);
  tensors::set_compute_threads(threads);

  const auto run = [&]() -> training::TrainReport {
    if (config.trains_on_gpus()) require_gpus(launched ? launched->local_size : num_ranks);
    const auto job = make_job(config, launched ? threads : available_cores());
    const RankCount ranks{.world = num_ranks, .per_node = launched ? launched->local_size : num_ranks};
    const ShardingRequest sharding = choose_sharding(config, ranks, *job);
    log_environment(config, *job, num_ranks, threads);
    check_memory(config, *job, ranks,
                 launched ? training::RankPlacement::kProcesses : training::RankPlacement::kThreads, sharding);
    if (!mpi || mpi->rank() == 0) check_output_place(config);
    if (config.dry_run) {
      check_start(config, *job);
      return {};
    }
    std::optional<RunFolder> folder;
    if (!mpi || mpi->rank() == 0) folder.emplace(config);
    const std::optional<fs::path> resume_from = mpi ? find_resume_together(config, *mpi) : find_resume(config);
    if (folder) check_output_folder(config, resume_from);
    if (!resume_from && !job->weights().empty()) checkpoint::verify_model_files(job->weights());
    const Json fingerprint = run_fingerprint(config, *job, num_ranks);
    std::optional<uint32_t> evaluation_data;
    if (job->has_evaluation()) evaluation_data = job->evaluation_data().fingerprint();
    if (mpi) require_alike(course_of_run(config, fingerprint, evaluation_data, resume_from), *mpi);
    std::optional<TerminationWatch> termination;
    if (config.training.enable_jit_checkpoint) termination.emplace();
    const Start start{.folder = folder ? &*folder : nullptr,
                      .resume_from = resume_from,
                      .fingerprint = fingerprint,
                      .evaluation_data = evaluation_data,
                      .first_rank = launched ? launched->rank - launched->local_rank : 0,
                      .termination = termination ? &*termination : nullptr,
                      .sharding_record = sharding.record.is_null() ? std::string() : sharding.record.dump(2) + "\n"};
    if (mpi) return run_rank(config, *job, start, *mpi);
    if (num_ranks == 1) {
      comm::SelfComm self;
      return run_rank(config, *job, start, self);
    }
    training::TrainReport report;
    const auto run_thread = [&](comm::Comm& comm) {
      training::TrainReport own = run_rank(config, *job, start, comm);
      if (comm.rank() == 0) report = std::move(own);
    };
    comm::run_ranks(num_ranks, threads, run_thread, patience);
    return report;
  };
  training::TrainReport report = mpi ? end_all_on_error(*mpi, run) : run();
  mpi.reset();  // in order, which an error would not be
  if (report.is_interrupted) throw ToldError(Error(ErrorKind::kInterrupted, "SIGTERM"));
  return report;
}

}  // namespace strake::tasks
