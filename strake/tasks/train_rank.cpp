#include "strake/tasks/train_rank.h"

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <functional>
#include <system_error>
#include <utility>

#include "strake/comm/nccl_comm.h"
#include "strake/comm/observed_comm.h"
#include "strake/core/cpu_features.h"
#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/kernels/cuda/library.h"
#include "strake/models/gpus.h"
#include "strake/models/layers/linear_products.h"
#include "strake/models/weights.h"
#include "strake/scoring/precision_file.h"
#include "strake/tasks/comms_log.h"
#include "strake/tasks/rank_agreement.h"
#include "strake/tasks/run_log.h"
#include "strake/tensors/cuda_libtorch.h"
#include "strake/training/checkpoint_weights.h"
#include "strake/training/device.h"
#include "strake/training/training_flops.h"
namespace strake::tasks {
namespace fs = std::filesystem;
namespace {

void initialize_weights(const models::Model& model, uint64_t seed, training::ShardedParameters& parameters) {
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
    models::initialize_block(*model.blocks()[i], model.initializer_range(), seed, whole);
    parameters.assign(i, whole);
  }
}

// Returns the checksum of what was read if `ranks` are processes, which may have read different files; else 0.
uint32_t load_weights(const TrainJob& job, uint64_t seed, const comm::Comm& ranks,
                      training::ShardedParameters& parameters) {
  if (job.weights().empty()) {
    initialize_weights(job.model(), seed, parameters);
    return 0;
  }
  uint32_t sum = 0;
  const auto add_to_sum = [&](const at::Tensor& block) {
    sum = crc32c(block.const_data_ptr(), static_cast<size_t>(block.nbytes()), sum);
  };
  const std::vector<std::string> added =
      training::load_checkpoint({.model = job.model(),
                                 .folder = job.weights(),
                                 .seed = seed,
                                 .ignores_mismatched_sizes = job.ignores_mismatched_sizes()},
                                parameters, ranks.is_one_process() ? training::BlockUse() : add_to_sum);
  if (!added.empty()) log::info("new, to be trained: {}", fmt::join(added, ", "));
  return sum;
}

constexpr const char* kGenerationConfig = "generation_config.json";

// That of an earlier run goes, too, where this one has none.
void write_or_remove(const fs::path& file, const std::string& content) {
  std::error_code ignored;
  if (content.empty()) {
    fs::remove(file, ignored);
  } else {
    write_file_atomically(file, content);
  }
}

// Gives the calling rank its GPU. Returns the group that knows GPUs.
std::unique_ptr<comm::Comm> take_gpu(int gpu, comm::Comm& ranks) {
  models::use_gpu(gpu);
  if (ranks.size() == 1) return std::make_unique<comm::SelfComm>();  // MPI's may not know GPUs' memory
  return comm::make_nccl_comm({.host = ranks,
                               .nccl = comm::nccl(),
                               .cuda = kernels::cuda::library(),
                               .device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(gpu))});
}

}  // namespace

std::string read_generation_config(const fs::path& model) {
  if (model.empty()) return "";
  const fs::path file = resolve_inside(model, kGenerationConfig, model.string());
  return is_there(file) ? read_file(file, kMaxConfigBytes) : "";
}

const char* matrix_products(const TrainConfig& config) {
  if (config.trains_on_gpus()) return "of libtorch on GPUs";
  return to_string(models::layers::matmul_library());
}

std::string kernels_of(const TrainConfig& config, std::optional<int> gpu) {
  const training::OffloadOptions& offload = config.training.sharding.offload;
  const bool is_all_on_gpu = gpu && !offload.optimizer && !offload.optimizer_to_host;
  if (is_all_on_gpu) return "CUDA on " + tensors::gpu_name(*gpu);
  const std::string products = gpu ? "CUDA on " + tensors::gpu_name(*gpu) : matrix_products(config);
  return fmt::format("{} and matrix products of {}", to_string(best_isa()), products);
}

namespace {

struct RankComms {
  comm::Comm& ranks;
  comm::Comm& collectives;  // `ranks`, or the same with GPUs
};

// `config` is of this rank: it says which GPU it has.
training::TrainReport train_with(const RankComms& comms, const TrainConfig& config, const TrainJob& job,
                                 const RunStart& start) {
  comm::Comm& ranks = comms.ranks;
  std::optional<CommsLog> comms_log;
  std::unique_ptr<comm::Comm> observed;
  if (config.comms_logger && ranks.rank() == 0) {
    comms_log.emplace(*config.comms_logger);
    observed =
        comm::observe(comms.collectives, [&](const comm::CommOperation& operation) { comms_log->add(operation); });
  }
  comm::Comm& comm = observed ? *observed : comms.collectives;
  training::ShardedParameters parameters(job.model(), comm, config.training);
  if (!start.resume_from) {
    const Json sum{{"crc32c of the weights to start from", load_weights(job, config.training.seed, ranks, parameters)}};
    if (!ranks.is_one_process()) require_alike(sum, ranks);
  }
  std::unique_ptr<RunLog> run_log;
  if (comm.rank() == 0) run_log = std::make_unique<RunLog>(config, job.model());
  const auto evaluate = [&] { return job.evaluate(parameters, comm); };
  training::TrainerInputs inputs{
      .model = job.model(),
      .train = job.train_data(),
      .length = start.length,
      .evaluate = job.has_evaluation() ? std::function<training::Evaluation()>(evaluate) : nullptr,
      .evaluation = start.evaluation,
      .training_flops = training::TrainingFlops(job.model()),
      .output_dir = config.output_dir,
      .resume_from = start.resume_from,
      .fingerprint = start.fingerprint,
      .kernels = kernels_of(config, config.training.gpu),
      .write_companions =
          [tokenizer = job.tokenizer(), settings = job.tokenizer_settings(),
           generation_config = start.generation_config, config_json = job.config_json()](const fs::path& folder) {
            std::error_code ignored;
            fs::remove(folder / scoring::kPrecisionFile, ignored);  // it tells of an earlier model
            tokenizer->save(folder, settings);
            write_or_remove(folder / kGenerationConfig, generation_config);
            write_file_atomically(folder / "config.json", config_json);
          },
      .listener = run_log.get(),
      .measures_parts = config.wall_clock_breakdown};
  if (start.termination) inputs.is_asked_to_end = [&] { return start.termination->is_requested(); };
  training::Trainer trainer(std::move(inputs), parameters, comm, config.training);
  if (run_log) start.folder->take(start.resume_from);
  require_same_folder(config.output_dir, ranks);
  if (run_log) {
    start.folder->clear(start.resume_from);
    write_or_remove(fs::path(config.output_dir) / "ds_config_resolved.json", start.sharding_record);
    run_log->open(start.resume_from ? std::optional(trainer.progress()) : std::nullopt);
  }
  const training::TrainReport report = trainer.run();
  if (run_log) run_log->close(report);
  if (comms_log) tell_collectives(*comms_log);
  return report;
}

}  // namespace

training::TrainReport run_rank(const TrainConfig& config, const TrainJob& job, const RunStart& start,
                               comm::Comm& ranks) {
  if (!config.trains_on_gpus()) return train_with({.ranks = ranks, .collectives = ranks}, config, job, start);
  TrainConfig own = config;
  // Batch systems may let each process see but its own.
  own.training.gpu = training::gpu_of_rank(ranks.rank() - start.first_rank);
  const std::unique_ptr<comm::Comm> collectives = take_gpu(*own.training.gpu, ranks);
  training::TrainReport report = train_with({.ranks = ranks, .collectives = *collectives}, own, job, start);
  ranks.barrier();  // NCCL's end waits for all ranks, and hears of none that fails meanwhile
  return report;
}

}  // namespace strake::tasks
