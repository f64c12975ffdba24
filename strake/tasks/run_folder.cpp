#include "strake/tasks/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake::tasks {

namespace fs = std::filesystem;

bool wants_resume(const TrainConfig& config) {
  const std::string& wish = config.resume_from_checkpoint;
  constexpr std::array kNone{"", "false", "False", "no"};
  return std::ranges::find(kNone, wish) == kNone.end();
}

fs::path output_place(const TrainConfig& config) {
  std::error_code error;
  fs::path place = fs::absolute(config.output_dir);
  while (fs::symlink_status(place, error).type() == fs::file_type::not_found && place.has_relative_path())
    place = place.parent_path();
  return place;
}

void check_output_place(const TrainConfig& config) {
  std::error_code error;
  const fs::path place = output_place(config);
  require(fs::is_directory(place, error), ErrorKind::kIo, "--output_dir {}: {} is no folder", config.output_dir,
          place.string());
  const bool is_usable = ::access(place.c_str(), R_OK | W_OK | X_OK) == 0;
  require(is_usable, ErrorKind::kIo, "--output_dir {}: cannot read and write in {}: {}", config.output_dir,
          place.string(), std::strerror(errno));
}

std::optional<fs::path> find_resume(const TrainConfig& config) {
  if (!wants_resume(config)) return std::nullopt;
  const std::string& wish = config.resume_from_checkpoint;
  constexpr std::array kNewest{"true", "True", "last", "latest"};
  if (std::ranges::find(kNewest, wish) != kNewest.end()) {
    const auto newest = checkpoint::newest_sound_checkpoint(config.output_dir);
    if (newest) return newest->path;
    require(
        !checkpoint::has_checkpoints(config.output_dir), ErrorKind::kIo,
        "--resume_from_checkpoint {}: none of the checkpoints in {} is sound; with --overwrite_output_dir instead, the "
        "run starts over and replaces them",
        wish, config.output_dir);
    log::info("no checkpoint in {}: starting from the beginning", config.output_dir);
    return std::nullopt;
  }
  std::error_code unknown;
  require(fs::exists(wish, unknown), ErrorKind::kIo,
          "--resume_from_checkpoint {} does not exist: it is true, false, or a folder", wish);
  checkpoint::refuse_deepspeed_checkpoint(wish);
  if (checkpoint::has_checkpoints(wish)) {  // a run's folder
    const auto newest = checkpoint::newest_sound_checkpoint(wish);
    require(newest.has_value(), ErrorKind::kIo, "--resume_from_checkpoint {}: none of its checkpoints is sound", wish);
    return newest->path;
  }
  fs::path folder = fs::path(wish).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // its name says a step
  checkpoint::verify_checkpoint(folder);
  return folder;
}

namespace {

// What a run reads beside its checkpoint: flags and paths.
std::vector<std::pair<std::string, std::string>> inputs_of(const TrainConfig& config) {
  std::vector<std::pair<std::string, std::string>> inputs{{"model_name_or_path", config.model_name_or_path},
                                                          {"tokenizer_name", config.tokenizer_name},
                                                          {"config_name", config.config_name},
                                                          {"deepspeed", config.deepspeed},
                                                          {"fsdp_config", config.fsdp_config}};
  for (const std::string& file : config.train_file) inputs.emplace_back("train_file", file);
  for (const std::string& file : config.validation_file) inputs.emplace_back("validation_file", file);
  std::erase_if(inputs, [](const auto& input) { return input.second.empty(); });
  return inputs;
}

// A run that starts over deletes all checkpoints, one that goes on the later ones.
void refuse_to_delete_inputs(const TrainConfig& config, const std::optional<fs::path>& resume_from) {
  if (!config.overwrite_output_dir && !resume_from) return;
  const int64_t last = resume_from ? checkpoint::step_of(*resume_from) : -1;
  for (const auto& [flag, path] : inputs_of(config)) {
    if (!checkpoint::is_in_a_checkpoint(config.output_dir, path, last)) continue;
    const std::string deletes =
        resume_from ? fmt::format("going on from {} deletes the later checkpoints", resume_from->string())
                    : "--overwrite_output_dir deletes the checkpoints";
    fail(ErrorKind::kUsage,
         "{} of --output_dir {}, and --{} {} is one of them, or in one: name another --output_dir, or move it away",
         deletes, config.output_dir, flag, path);
  }
}

}  // namespace

void check_output_folder(const TrainConfig& config, const std::optional<fs::path>& resume_from) {
  std::error_code unknown;
  require(config.overwrite_output_dir || resume_from || config.model_name_or_path.empty() ||
              !fs::equivalent(config.output_dir, config.model_name_or_path, unknown),
          ErrorKind::kUsage,
          "--output_dir {} is the folder of --model_name_or_path, whose model would be replaced: name another one, or "
          "pass --overwrite_output_dir",
          config.output_dir);
  refuse_to_delete_inputs(config, resume_from);
  const std::optional<fs::path> obstacle = checkpoint::find_obstacle(config.output_dir);
  require(!obstacle, ErrorKind::kUsage,
          "--output_dir {}: {} is no folder, and the checkpoint of that step would replace it: move it away",
          config.output_dir, obstacle.value_or("").string());
  if (config.overwrite_output_dir || !checkpoint::has_checkpoints(config.output_dir)) return;
  require(resume_from.has_value(), ErrorKind::kUsage,
          "--output_dir {} has checkpoints of an earlier run: pass --resume_from_checkpoint true to continue it or "
          "--overwrite_output_dir to delete them",
          config.output_dir);
  std::error_code error;
  const fs::path run = (*resume_from / "..").lexically_normal();  // where a link is, not where it leads
  require(fs::equivalent(run, config.output_dir, error), ErrorKind::kUsage,
          "--output_dir {} has checkpoints of another run than --resume_from_checkpoint {} continues: name a folder "
          "without checkpoints, or pass --resume_from_checkpoint true to continue the run in it",
          config.output_dir, resume_from->string());
}

Json run_fingerprint(const TrainConfig& config, const TrainJob& job, int num_ranks) {
  const training::TrainingOptions& options = config.training;
  Json fingerprint{{"seed", options.seed},
                   {"data_seed", options.order_seed()},
                   {"per_device_train_batch_size", options.per_device_train_batch_size},
                   {"max_tokens_per_batch", options.max_tokens_per_batch},
                   {"micro_batches_per_step", options.gradient_accumulation_steps * num_ranks},
                   {"bf16", options.bf16},
                   {"fp16", options.fp16},
                   {"communication_data_type", to_string(options.reduction)},
                   {"grad_accum_dtype", to_string(options.accumulation)},
                   {"master_weights_dtype", to_string(options.master)},
                   {"optim", options.optim + (options.optimizer_settings().amsgrad ? " with amsgrad" : "")},
                   {"dataloader_drop_last", options.dataloader_drop_last},
                   {"train_sequences", job.train_data().size()},
                   {"train_tokens", job.train_data().total_tokens()},
                   // After the counts, which say more, in the alphabet.
                   {"training_data_crc32c", job.train_data().fingerprint()},
                   {"tokenizer", job.tokenizer()->fingerprint()}};
  fingerprint.update(job.fingerprint());
  // These say nothing of what the model computes.
  constexpr std::array<std::string_view, 4> kDescriptions{"architectures", "dtype", "transformers_version",
                                                          "_name_or_path"};
  const Json model = parse_json(job.config_json(), "config.json");
  for (const auto& [key, value] : model.items()) {
    if (std::ranges::find(kDescriptions, key) == kDescriptions.end()) fingerprint["model_config." + key] = value;
  }
  return fingerprint;
}

Json how_evaluated(const TrainConfig& config, const TrainJob& job) {
  Json evaluation = job.evaluation_settings();
  evaluation["evaluation_data_crc32c"] = job.evaluation_data().fingerprint();
  const bool is_loss = config.training.best_metric_name() == "eval_loss";
  if (is_loss) evaluation["label_smoothing_factor"] = config.training.label_smoothing_factor;
  return evaluation;
}

RunFolder::RunFolder(const TrainConfig& config) : config_(config) { lock(); }

void RunFolder::lock() {
  if (lock_ >= 0) return;
  const int folder = ::open(config_.output_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const bool is_taken = ::flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (is_taken) ::close(folder);
  require(!is_taken, ErrorKind::kUsage, "--output_dir {}: another run is writing into it", config_.output_dir);
  lock_ = folder;
}

void RunFolder::take(const std::optional<fs::path>& resume_from) {
  create_directories(config_.output_dir);
  lock();
  check_output_folder(config_, resume_from);  // again: it may be another run that has made the folder
}

void RunFolder::clear(const std::optional<fs::path>& resume_from) {
  checkpoint::remove_leftovers(config_.output_dir);
  if (!resume_from) checkpoint::remove_checkpoints(config_.output_dir);
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void require_same_folder(const fs::path& folder, comm::Comm& ranks) {
  if (ranks.is_one_process()) return;
  const std::string own = fmt::format("{}rank-0-{}", checkpoint::kTemporaryPrefix, std::random_device()());
  const fs::path sign = folder / comm::broadcast_text(ranks, own, 0);
  comm::together(ranks, [&] {
    if (ranks.rank() == 0) write_file_atomically(sign, "");
  });
  const bool is_seen = is_there(sign);
  ranks.barrier();
  std::error_code ignored;
  if (ranks.rank() == 0) fs::remove(sign, ignored);
  comm::together(ranks, [&] {
    require(is_seen, ErrorKind::kIo,
            "--output_dir {} is not the folder of rank 0: all ranks write into it, so it must be on a disk that they "
            "share",
            folder.string());
  });
}

}  // namespace strake::tasks
