#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "strake/inference/precision.h"
#include "strake/tasks/precision_file.h"

namespace strake::tasks {

// The precision that --precision and --bf16 ask for. Empty `precision`: bf16 with --bf16, else fp32.
struct PrecisionFlags {
  std::string precision;  // "", fp32, bf16, int8 or auto
  bool bf16 = false;

  // Errors (kUsage): a name that is none of these, or two flags that contradict each other.
  void validate() const;
};

struct PrecisionChoice {
  inference::PrecisionPlan plan;
  Json accuracy;  // accuracy_json(), or {"measured": false}; null of fp32, with which the others are compared
};

// Flags with what the model's folder says of `task`; what it says of another task is not believed. Warns where nothing
// is promised. Logs what `auto` chose, and why.
// Errors (kConfig): a kPrecisionFile that cannot be read, or, with --precision int8, one of another model. `auto` takes
// int8 or bf16 if the file's measurements hold; without a file bf16 where the processor has instructions for it, else
// fp32.
PrecisionChoice choose_precision(const PrecisionFlags& flags, const std::filesystem::path& folder, int64_t num_layers,
                                 const MeasuredTask& task);

// "int8", or "int8 with 2 of 24 linear layers in bf16".
std::string describe(const inference::PrecisionPlan& plan, int64_t num_layers);

}  // namespace strake::tasks
