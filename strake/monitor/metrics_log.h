#pragma once

#include <filesystem>
#include <span>
#include <utility>

#include "strake/core/appended_file.h"
#include "strake/core/json.h"

namespace strake::monitor {

// metrics.jsonl: one JSON object per line, appended while a run goes on, so that a reader (tail -f, a dashboard) sees
// whole lines only. A line outlives the process as soon as append() returns. Not thread-safe; one writer per file.
class MetricsLog {
 public:
  // Starts a new log; an existing file is emptied.
  static MetricsLog start(const std::filesystem::path& path);

  // Continues the log of a run that goes on after it has logged `entries`: they and nothing else are in the file then,
  // but for a closing one (with "train_runtime"). It is written anew, atomically, if it is absent or has others, as
  // those that the run will write again, or what a power cut has left of it. Lines in front of them stay: of a long
  // run a checkpoint keeps the newer entries only.
  static MetricsLog resume(const std::filesystem::path& path, std::span<const Json> entries);

  // Writes `object` as one line. NaN and infinity become null. Error (kIo) if the line cannot be written (a full disk);
  // the file then ends where it ended before.
  void append(const Json& object);

 private:
  explicit MetricsLog(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

}  // namespace strake::monitor
