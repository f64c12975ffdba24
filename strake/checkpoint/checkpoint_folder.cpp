#include "strake/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <ranges>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/core/log.h"
#include "strake/core/parse_integer.h"
#include "strake/core/tokenizer_files.h"

namespace strake::checkpoint {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kFinite = "finite";  // weights; if not told, they are
constexpr int kFormatVersion = 1;

FileSum sum_file(const fs::path& path) {
  std::error_code error;
  require(fs::is_regular_file(path, error), ErrorKind::kIo, "{} is missing, or is not a regular file", path.string());
  const uint64_t bytes = fs::file_size(path, error);
  require(!error, ErrorKind::kIo, "cannot read {}: {}", path.string(), error.message());
  return {bytes, crc32c_of_file(path, 0, static_cast<int64_t>(bytes))};
}

std::optional<int64_t> parse_step(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = parse_integer<int64_t>(std::string_view(name).substr(kPrefix.size()));
  return step && *step >= 0 ? step : std::nullopt;
}

// Folders called as checkpoints are, complete or not, by ascending step.
std::vector<CheckpointFolder> list_by_name(const fs::path& output_dir) {
  std::vector<CheckpointFolder> found;
  std::error_code error;
  const fs::directory_iterator entries(output_dir, error);
  const bool is_no_folder = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  require(!error || is_no_folder, ErrorKind::kIo, "cannot list {}: {}", output_dir.string(), error.message());
  for (const auto& entry : entries) {
    std::error_code unknown;
    const auto step = parse_step(entry.path().filename().string());
    if (step && entry.is_directory(unknown)) found.push_back({entry.path(), *step});
  }
  std::ranges::sort(found, {}, &CheckpointFolder::step);
  return found;
}

// Gives a folder the name of a leftover, which nobody takes for a checkpoint while it is deleted. Of a symbolic link
// only the link goes. Empty: it cannot be moved.
fs::path set_aside(const fs::path& folder) {
  std::error_code error;
  fs::path doomed = folder.parent_path() / fmt::format(".{}.old", folder.filename().string());
  fs::remove_all(doomed, error);
  fs::rename(folder, doomed, error);
  if (!error) return doomed;
  log::warning("cannot remove {}: {}", folder.string(), error.message());
  return {};
}

void remove_set_aside(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (!folder.empty()) fs::remove_all(folder, error);
    if (error) log::warning("cannot remove {}: {}", folder.string(), error.message());
  }
}

// Which files of a checkpoint are compared with its manifest.
enum class Part { kAll, kModel };

bool is_of_optimizer(const std::string& name) { return name.starts_with(kOptimizerPrefix); }
bool is_tensor_file(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}
bool is_companion(const std::string& name) {
  return name == "config.json" || std::ranges::find(kTokenizerFiles, name) != kTokenizerFiles.end();
}
bool is_state_file(const std::string& name) { return name == kStateFile || name == kHistoryFile; }

void verify_step(const fs::path& folder, const Json& manifest, const std::string& source) {
  const auto step = get_required<int64_t>(manifest, "step", source);
  const std::optional<int64_t> named = parse_step(folder.filename().string());
  require(!named || *named == step, ErrorKind::kIo, "{}: it is of step {}, the folder's name says {}", source, step,
          named.value_or(0));
}

void verify_files(const fs::path& folder, const Json& manifest, Part part) {
  const std::string source = (folder / kManifest).string();
  const auto version = get_required<int>(manifest, "format_version", source);
  require(version == kFormatVersion, ErrorKind::kIo, "{}: format_version {} is not {}", source, version,
          kFormatVersion);
  if (part == Part::kAll) verify_step(folder, manifest, source);
  const Json files = get_required<Json>(manifest, "files", source);
  require(files.is_object() && !files.empty(), ErrorKind::kIo, "{}: lists no files", source);
  for (const auto& [name, expected] : files.items()) {
    const fs::path path = resolve_inside(folder, name, source);
    if (part == Part::kModel && is_of_optimizer(name)) continue;
    const FileSum sum = sum_file(path);
    const auto bytes = get_required<uint64_t>(expected, "bytes", source);
    require(sum.bytes == bytes, ErrorKind::kIo, "{} has {} bytes, the manifest says {}", path.string(), sum.bytes,
            bytes);
    require(sum.crc == get_required<uint32_t>(expected, "crc32c", source), ErrorKind::kIo,
            "{} is damaged: its checksum is not the manifest's", path.string());
  }
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  require(!error, ErrorKind::kIo, "cannot list {}: {}", folder.string(), error.message());
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    const bool belongs = is_tensor_file(name) || is_companion(name) || (part == Part::kAll && is_state_file(name));
    require(!belongs || files.contains(name), ErrorKind::kIo,
            "{} does not belong to this checkpoint: its manifest does not list it. Remove the file",
            entry.path().string());
  }
}

// A manifest that does not parse is damaged, not written by a user.
template <typename Check>
void as_damage(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    fail(ErrorKind::kIo, "{}", error.what());
  }
}

}  // namespace

namespace {

// As far as its manifest tells.
bool has_finite_weights(const CheckpointFolder& folder) {
  try {
    const fs::path manifest = folder.path / kManifest;
    return get_or<bool>(read_json(manifest, kMaxIndexBytes), kFinite, true, manifest.string());
  } catch (const Error&) {
    return false;
  }
}

// Complete ones of later steps than `step`, the latest first: what is left after a kill is of one course.
std::vector<fs::path> set_aside_later(const fs::path& output_dir, int64_t step) {
  std::vector<fs::path> doomed;
  const std::vector<CheckpointFolder> folders = list_checkpoints(output_dir);
  for (const CheckpointFolder& folder : folders | std::views::reverse) {
    if (folder.step <= step) continue;
    log::info("removing {}", folder.path.string());
    doomed.push_back(set_aside(folder.path));
  }
  return doomed;
}

// Of the manifest. `sums`: of files that other ranks wrote, perhaps into another folder of this path, or to a disk that
// does not list them yet.
Json list_files(const fs::path& folder, const std::map<std::string, FileSum>& sums) {
  Json files = Json::object();
  const auto add = [&](const std::string& name, const FileSum& sum) {
    files[name] = {{"bytes", sum.bytes}, {"crc32c", sum.crc}};
  };
  for (const auto& [name, sum] : sums) {
    const fs::path path = folder / name;
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path, error);
    require(!error, ErrorKind::kIo, "{} was written, with {} bytes, and is not to be seen: {}", path.string(),
            sum.bytes, error.message());
    require(bytes == sum.bytes, ErrorKind::kIo, "{} has {} bytes, {} were written", path.string(), bytes, sum.bytes);
    add(name, sum);
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!sums.contains(name)) add(name, sum_file(entry.path()));
  }
  return files;
}

}  // namespace

std::string folder_name(int64_t step) { return fmt::format("{}{}", kPrefix, step); }

fs::path temporary_folder(const fs::path& output_dir, int64_t step) {
  return output_dir / fmt::format("{}{}.tmp", kTemporaryPrefix, step);
}

CheckpointWriter::CheckpointWriter(fs::path output_dir, int64_t step)
    : output_dir_(std::move(output_dir)), step_(step) {
  final_ = output_dir_ / folder_name(step);
  temporary_ = temporary_folder(output_dir_, step);
  std::error_code error;
  fs::remove_all(temporary_, error);
  // What is left of another attempt would become part of this checkpoint.
  require(!error, ErrorKind::kIo, "cannot remove {}, left by an interrupted save: {}", temporary_.string(),
          error.message());
  strake::create_directories(temporary_);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code error;
  if (!committed_ && !is_left_) fs::remove_all(temporary_, error);
}

fs::path CheckpointWriter::commit(const Content& content) {
  Json manifest{{"format_version", kFormatVersion}, {"step", step_}, {"files", list_files(temporary_, content.sums)}};
  if (!content.is_finite) manifest[kFinite] = false;
  write_file_atomically(temporary_ / kManifest, manifest.dump(2) + "\n");
  std::vector<fs::path> replaced = set_aside_later(output_dir_, content.last);
  std::error_code error;
  const bool is_taken = fs::symlink_status(final_, error).type() != fs::file_type::not_found;  // a link to nothing, too
  if (is_taken) replaced.push_back(set_aside(final_));                                         // no complete one
  fs::rename(temporary_, final_, error);
  require(!error, ErrorKind::kIo, "cannot rename {} to {}: {}", temporary_.string(), final_.string(), error.message());
  committed_ = true;
  sync_directory(output_dir_);
  remove_set_aside(replaced);  // which takes long
  return final_;
}

bool has_checkpoints(const fs::path& output_dir) { return !list_by_name(output_dir).empty(); }

std::optional<fs::path> find_obstacle(const fs::path& output_dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    std::error_code unknown;
    const fs::file_type type = entry.symlink_status(unknown).type();
    const bool is_in_the_way = type != fs::file_type::directory && type != fs::file_type::symlink;
    if (is_in_the_way && parse_step(entry.path().filename().string())) return entry.path();
  }
  return std::nullopt;
}

bool is_in_a_checkpoint(const fs::path& output_dir, const fs::path& path, int64_t last) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  return std::ranges::any_of(list_by_name(output_dir), [&](const CheckpointFolder& folder) {
    if (folder.step <= last) return false;
    const fs::path inside = target.lexically_relative(fs::weakly_canonical(folder.path, error));
    return !inside.empty() && *inside.begin() != "..";
  });
}

int64_t step_of(const fs::path& folder) {
  const fs::path manifest = folder / kManifest;
  return get_required<int64_t>(read_json(manifest, kMaxIndexBytes), "step", manifest.string());
}

std::vector<CheckpointFolder> list_checkpoints(const fs::path& output_dir) {
  std::vector<CheckpointFolder> found = list_by_name(output_dir);
  std::erase_if(found, [](const CheckpointFolder& folder) { return !is_there(folder.path / kManifest); });
  return found;
}

void verify_checkpoint(const fs::path& folder) {
  std::error_code error;
  require(fs::exists(folder, error), ErrorKind::kIo, "{} does not exist", folder.string());
  require(fs::is_directory(folder, error), ErrorKind::kIo, "{} is no folder: checkpoints are folders", folder.string());
  require(is_there(folder / kManifest), ErrorKind::kIo,
          "{} has no manifest.json: no complete checkpoint of strake's; another program's is a model to start from "
          "(--model_name_or_path)",
          folder.string());
  as_damage([&] { verify_files(folder, read_json(folder / kManifest, kMaxIndexBytes), Part::kAll); });
}

uint32_t manifest_sum(const fs::path& folder) { return sum_file(folder / kManifest).crc; }

void verify_model_files(const fs::path& folder) {
  if (!is_there(folder / kManifest)) return;
  as_damage([&] {
    const Json manifest = read_json(folder / kManifest, kMaxIndexBytes);
    if (!manifest.contains("format_version")) return;
    verify_files(folder, manifest, Part::kModel);
    log::info("{}: its files have the checksums of {}", folder.string(), kManifest);
  });
}

void refuse_deepspeed_checkpoint(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_state = name.starts_with("mp_rank_") || name.starts_with("zero_pp_rank_") ||
                          name.starts_with("bf16_zero_pp_rank_") || name.starts_with("global_step");
    require(!is_state, ErrorKind::kConfig,
            "{} is a checkpoint of DeepSpeed ({}): strake goes on only with runs of its own. DeepSpeed's "
            "zero_to_fp32.py makes weights of it, with which --model_name_or_path starts a new run",
            folder.string(), name);
  }
}

std::optional<CheckpointFolder> newest_sound_checkpoint(const fs::path& output_dir) {
  const std::vector<CheckpointFolder> folders = list_by_name(output_dir);
  std::optional<CheckpointFolder> not_finite;
  for (const CheckpointFolder& folder : folders | std::views::reverse) {
    try {
      verify_checkpoint(folder.path);
      if (has_finite_weights(folder)) return folder;
      log::warning("{} has weights that are not finite", folder.path.string());
      if (!not_finite) not_finite = folder;
    } catch (const Error& error) {
      log::warning("{} is not used: {}", folder.path.string(), error.what());
    }
  }
  return not_finite;
}

void remove_checkpoints(const fs::path& output_dir) { remove_set_aside(set_aside_later(output_dir, -1)); }

void prune_checkpoints(const fs::path& output_dir, int64_t limit, const std::optional<fs::path>& best) {
  std::vector<CheckpointFolder> folders = list_checkpoints(output_dir);
  auto remaining = static_cast<int64_t>(folders.size());
  // With a limit of 1 the best and the newest may both stay: the newest is needed to resume.
  const int64_t newest = folders.empty() ? -1 : folders.back().step;
  const auto finite = std::ranges::find_if(folders | std::views::reverse, has_finite_weights);
  const int64_t newest_finite = finite == folders.rend() ? -1 : finite->step;
  for (const CheckpointFolder& folder : folders) {
    if (remaining <= limit) return;
    std::error_code error;
    if (folder.step == newest || folder.step == newest_finite) continue;
    if (best && fs::equivalent(folder.path, *best, error)) continue;
    remove_set_aside({set_aside(folder.path)});
    --remaining;
  }
}

namespace {

std::vector<fs::path> find_leftovers(const fs::path& output_dir) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_file = entry.symlink_status(error).type() == fs::file_type::regular;
    if (name.starts_with(kTemporaryPrefix) || (is_file && is_abandoned(name))) leftovers.push_back(entry.path());
  }
  return leftovers;
}

}  // namespace

uintmax_t bytes_of_leftovers(const fs::path& output_dir) {
  std::error_code error;
  uintmax_t bytes = 0;
  const auto add = [&](const fs::directory_entry& entry) {
    if (entry.symlink_status(error).type() == fs::file_type::regular) bytes += entry.file_size(error);
  };
  for (const fs::path& path : find_leftovers(output_dir)) {
    add(fs::directory_entry(path, error));
    for (const auto& entry : fs::recursive_directory_iterator(path, error)) add(entry);
  }
  return bytes;
}

void remove_leftovers(const fs::path& output_dir) {
  std::error_code error;
  for (const fs::path& path : find_leftovers(output_dir)) {
    log::info("removing {}, left by an interrupted save", path.string());
    fs::remove_all(path, error);
    if (error) log::warning("cannot remove {}: {}", path.string(), error.message());
  }
}

}  // namespace strake::checkpoint
