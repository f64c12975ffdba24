#include "strake/tasks/disk_checks.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/error.h"
#include "strake/core/scratch_file.h"
#include "strake/tasks/run_folder.h"

namespace strake::tasks {

namespace fs = std::filesystem;
namespace {

constexpr const char* kNvmePath = "zero_optimization.offload_optimizer.nvme_path";
constexpr double kMebibyte = 1 << 20;

bool are_on_one_disk(const fs::path& first, const fs::path& second) {
  struct stat of_first{};
  struct stat of_second{};
  return ::stat(first.c_str(), &of_first) == 0 && ::stat(second.c_str(), &of_second) == 0 &&
         of_first.st_dev == of_second.st_dev;
}

// Of the ranks of a machine, where they are on the disk of `place`.
int64_t scratch_bytes_at(const fs::path& place, const RunVariant& variant) {
  if (variant.disk_bytes == 0) return 0;
  return are_on_one_disk(place, variant.options.sharding.offload.folder) ? variant.disk_bytes : 0;
}

}  // namespace

void check_offload_folder(const training::OffloadOptions& offload, const std::string& source) {
  if (!offload.optimizer && !offload.parameters) return;
  constexpr size_t kMostOfPath = 1000;
  std::error_code unknown;
  const fs::file_status status = fs::status(offload.folder, unknown);
  const std::string problem = fs::exists(status)                          ? "is no folder"
                              : status.type() == fs::file_type::not_found ? "does not exist"
                                                                          : unknown.message();
  require(fs::is_directory(status), ErrorKind::kConfig, "{}: {}: {} {}, expected a folder on the disk to use", source,
          kNvmePath, printable(offload.folder.string(), kMostOfPath), problem);
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
  require(variant.disk_bytes <= free, ErrorKind::kIo,
          "{}: {}: scratch files of {:.1f} MiB for the ranks of a machine do not fit in {}, which has {:.1f} MiB free",
          source, kNvmePath, static_cast<double>(variant.disk_bytes) / kMebibyte, folder.string(),
          static_cast<double>(free) / kMebibyte);
}

void check_output_room(const TrainConfig& config, const PlannedRun& run, const RunVariant& variant) {
  if (config.overwrite_output_dir && checkpoint::has_checkpoints(config.output_dir)) return;
  const fs::path place = output_place(config);
  std::error_code error;
  const fs::space_info space = fs::space(place, error);
  if (error || space.capacity == 0) return;
  const bool saves = run.options.save_strategy != "no";
  const int64_t model = run.model.num_parameters() * static_cast<int64_t>(sizeof(float));
  const int64_t scratch = scratch_bytes_at(place, variant);
  const int64_t needed = model + (saves ? checkpoint_bytes(run) : 0) + scratch;
  // What an interrupted save has left is removed before the run begins.
  const uintmax_t free = space.available + checkpoint::bytes_of_leftovers(config.output_dir);
  require(static_cast<uintmax_t>(needed) <= free, ErrorKind::kIo,
          "--output_dir {}: {} {:.1f} MiB{}, and {} has {:.1f} MiB free", config.output_dir,
          saves ? "a checkpoint and the model at the end take" : "the model at the end takes",
          static_cast<double>(needed) / kMebibyte,
          scratch > 0 ? " with the scratch files of nvme_path, which is on the same disk" : "", place.string(),
          static_cast<double>(free) / kMebibyte);
}

}  // namespace strake::tasks
