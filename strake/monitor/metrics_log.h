#pragma once

#include <cstdint>
#include <filesystem>
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

  // Continues the log of a run that goes on after optimizer update `step`: an atomic rewrite removes what the run will
  // write again, lines with a "step" beyond it and the closing line (with "train_runtime"), and torn lines (a crash, a
  // power cut). An absent file is created.
  static MetricsLog resume(const std::filesystem::path& path, int64_t step);

  // Writes `object` as one line. NaN and infinity become null. Error (kIo) if the line cannot be written (a full disk);
  // the file then ends where it ended before.
  void append(const Json& object);

 private:
  explicit MetricsLog(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

}  // namespace strake::monitor
