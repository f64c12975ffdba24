#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strake/core/crc32c.h"

// Training checkpoints as `output_dir`/checkpoint-<step> folders in Hugging Face's layout. A folder counts only with
// its manifest.json, which lists size and CRC-32C of every file and is written last: whatever a crash leaves behind is
// recognised and never loaded.
namespace strake::checkpoint {

// What begins so in a run's folder is left by an interrupted save, if nobody writes it.
inline constexpr std::string_view kTemporaryPrefix = ".checkpoint-";
// Files of a checkpoint beside those of a model.
inline constexpr const char* kStateFile = "strake_state.json";
inline constexpr const char* kHistoryFile = "trainer_state.json";
inline constexpr std::string_view kOptimizerPrefix = "optimizer-";

// Writes one checkpoint. Files go into a hidden sibling folder, path(), by those who make them durable (AtomicFile);
// commit() checksums them, makes the manifest and the folder durable and renames the folder into place. Without
// commit() or leave() the destructor removes it. One writer at a time.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path output_dir, int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  const std::filesystem::path& path() const { return temporary_; }
  int64_t step() const { return step_; }
  struct Content {
    std::map<std::string, FileSum> sums;  // of files as they were written, by name; others are read for the manifest
    int64_t last = -1;                    // step of the checkpoint that the run has saved before or gone on from
    bool is_finite = true;                // the weights; others are gone on from, and kept, in the last place
  };
  // Checkpoints of steps after `last` are of a course that this one replaces: they go. Returns the final folder. Error
  // (kIo) if a file of `sums` is not there as it was written.
  std::filesystem::path commit(const Content& content);
  // Without commit(): keeps the folder for remove_leftovers().
  void leave() { is_left_ = true; }

 private:
  std::filesystem::path output_dir_;
  std::filesystem::path temporary_;
  std::filesystem::path final_;
  int64_t step_;
  bool committed_ = false;
  bool is_left_ = false;
};

// "checkpoint-<step>"
std::string folder_name(int64_t step);

// Where the checkpoint of a step is written until it is complete: all ranks write into the folder that rank 0's
// CheckpointWriter makes.
std::filesystem::path temporary_folder(const std::filesystem::path& output_dir, int64_t step);

// True if there is any folder called checkpoint-<step>, also one that is no complete checkpoint or somebody else's.
bool has_checkpoints(const std::filesystem::path& output_dir);

// A file called checkpoint-<step>, which a checkpoint would replace; none if there is no such file. Links are none: of
// them nothing but the link is replaced.
std::optional<std::filesystem::path> find_obstacle(const std::filesystem::path& output_dir);

// Whether `path`, with links followed, is a checkpoint of `output_dir` of a later step than `last`, or in one.
bool is_in_a_checkpoint(const std::filesystem::path& output_dir, const std::filesystem::path& path, int64_t last = -1);

// The step that the manifest of a complete checkpoint names.
int64_t step_of(const std::filesystem::path& folder);

struct CheckpointFolder {
  std::filesystem::path path;
  int64_t step = 0;
};

// Committed checkpoints of `output_dir`, by ascending step. Cheap: does not read the files.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& output_dir);

// Reads every file and compares with the manifest; Error (kIo) naming the file and what differs. Weights, states,
// configuration and tokenizer files that the manifest does not list are of another checkpoint: refused too.
void verify_checkpoint(const std::filesystem::path& folder);

// The same for a folder that a model is loaded from, without the optimizer's files. Other folders than checkpoints,
// which have no manifest, or somebody else's, are not looked at.
void verify_model_files(const std::filesystem::path& folder);

// Checksum of a checkpoint's manifest, and so of all its files.
uint32_t manifest_sum(const std::filesystem::path& folder);

// Error (kConfig) if `folder` is a checkpoint or a run's folder of DeepSpeed's.
void refuse_deepspeed_checkpoint(const std::filesystem::path& folder);

// The newest checkpoint that verifies, if there is one with finite weights; newer ones that are neither are logged as
// warnings and left out.
std::optional<CheckpointFolder> newest_sound_checkpoint(const std::filesystem::path& output_dir);

// Deletes all complete ones.
void remove_checkpoints(const std::filesystem::path& output_dir);

// Deletes the oldest checkpoints until `limit` are left, as Hugging Face's save_total_limit does: never `best`, nor the
// last one with finite weights.
void prune_checkpoints(const std::filesystem::path& output_dir, int64_t limit,
                       const std::optional<std::filesystem::path>& best);

// Deletes what interrupted writers left in `output_dir`: folders of checkpoints and temporary files of AtomicFile.
void remove_leftovers(const std::filesystem::path& output_dir);
// What that would free.
uintmax_t bytes_of_leftovers(const std::filesystem::path& output_dir);

}  // namespace strake::checkpoint
