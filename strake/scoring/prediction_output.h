#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/table_writer.h"
#include "strake/scoring/prediction_columns.h"
#include "strake/scoring/shard.h"
#include "strake/scoring/written_file.h"

namespace strake::scoring {

// Where a job's files are.
//  --output     scored.parquet                            scored/
//  data         scored.parquet                            scored/part-00000.parquet, ..., _SUCCESS once all is there
//  manifest     _scored.parquet.manifest.json             scored/_manifest.json
//  unfinished   .scored.parquet.job/                      scored/.job/
// With --shard 2/8 the names are scored-00002-of-00008.parquet, scored/part-00002-of-00008-00000.parquet and so on.
// Readers of folders pass over names that begin with '_' or '.'.
class OutputPlace {
 public:
  // A symbolic link to a file stands for that file: all of this is beside it. Error (kUsage) for one that leads
  // nowhere.
  OutputPlace(const std::string& output, const Shard& shard);

  bool is_folder() const { return name_.empty(); }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path data_file(int64_t part) const;
  std::filesystem::path manifest() const { return manifest_of(shard_); }
  std::filesystem::path job_folder() const;

  // What a crash left of this job's unfinished files.
  void remove_leftovers() const;
  // A folder: Error (kUsage) if it holds data of another run, anything that is of none, or of an earlier one of this
  // shard that is not to be overwritten. Removes what an earlier one says of itself.
  void make_room(const Json& identity, bool overwrite) const;
  // A folder: why the shards whose manifests are there do not belong together with one of this identity, naming the
  // first that does not; empty if they do.
  std::string unlike_shard(const Json& identity) const;
  // A folder: writes _SUCCESS if all shards have their manifest.
  void mark_success() const;

 private:
  std::filesystem::path manifest_of(const Shard& shard) const;
  std::string part_prefix() const { return "part" + shard_.suffix() + "-"; }
  bool is_of_other_shard(const std::string& part) const;
  // In words that go on a sentence about the job whose manifest is there; empty if there is none.
  std::string difference_from_finished(const Json& identity) const;

  std::filesystem::path folder_;
  std::string name_;  // of a single file, with the shard; empty for a folder
  Shard shard_;
};

struct OutputOptions {
  int64_t rows_per_file = 0;  // of a folder
  std::map<std::string, std::string> metadata = {};
};

// Rows with their predictions, as one Parquet file or several, each of which is there when it is complete. What is
// written depends on the tables and the options alone. One thread at a time.
class PredictionOutput {
 public:
  PredictionOutput(OutputPlace place, PredictionColumns columns, KeptColumns kept, OutputOptions options);

  void append(const data::Table& table, const ScoredRows& scored);
  // At least one table, possibly without rows, must have been appended.
  void finish();
  const std::vector<WrittenFile>& files() const { return files_; }  // those that are complete

 private:
  OutputPlace place_;
  PredictionColumns columns_;
  KeptColumns kept_;
  OutputOptions options_;
  std::vector<WrittenFile> files_;
  std::optional<data::TableWriter> writer_;
  int64_t rows_in_file_ = 0;
};

}  // namespace strake::scoring
