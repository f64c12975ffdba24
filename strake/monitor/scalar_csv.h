#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "strake/core/appended_file.h"
#include "strake/monitor/scalar_log.h"

namespace strake::monitor {

// DeepSpeed's csv_monitor: a file for each tag, "Train_Samples_lr.csv" for Train/Samples/lr, with columns step and lr.
// A run that goes on appends to it.
class ScalarCsv final : public ScalarLog {
 public:
  // The folder is created with its parents.
  explicit ScalarCsv(std::filesystem::path folder);

  void write(std::span<const Scalar> scalars, int64_t step) override;

 private:
  std::filesystem::path folder_;
  std::map<std::string, AppendedFile> files_;  // by tag
};

}  // namespace strake::monitor
