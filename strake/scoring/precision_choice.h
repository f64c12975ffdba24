#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "strake/inference/precision.h"
#include "strake/scoring/precision_file.h"

namespace strake::scoring {

// The precision that --precision and --bf16 ask for. Empty `precision`: bf16 with --bf16, else fp32.
struct PrecisionFlags {
  std::string precision;  // "", fp32, bf16, int8 or auto
  bool bf16 = false;
  std::string file = {};  // of --precision_file: in the place of the one beside the model

  bool asks_for_bf16() const { return bf16 || precision == "bf16"; }

  // Errors (kUsage): a name that is none of these, or two flags that contradict each other.
  void validate() const;
  // Where the measurement of a model is read, and written by a calibration.
  std::filesystem::path file_of(const std::filesystem::path& model) const;
};

struct PrecisionChoice {
  inference::PrecisionPlan plan;
  // accuracy_json(), perhaps with "notices", or "measured": false, perhaps with "why"; null of fp32, with which the
  // others are compared.
  Json accuracy;
};

// What is to be scored, and with what.
struct PlannedScoring {
  std::filesystem::path folder;
  int64_t num_layers = 0;
  MeasuredTask task;
  MeasuredWith with;
  bool on_gpu = false;  // which has no int8
};

// Flags with what PrecisionFlags::file_of the model says. It is not believed if it was measured for another task, model
// or tokenizer, or does not say for which. Of another --max_seq_length or other kernels it is believed, with a warning,
// and "notices" in the accuracy say so. Warns where nothing is promised. Logs what `auto` chose, and why.
//
// `auto` takes int8 if the file's measurement of enough rows holds; else bf16 on GPUs and where the processor has
// instructions for it, unless the file says that it is not near enough; else fp32.
// Errors: kConfig for a file that cannot be read, or, with --precision int8, one that is not believed for another
// reason than its task; kIo for a --precision_file that is not there; kUsage for one beside fp32.
PrecisionChoice choose_precision(const PrecisionFlags& flags, const PlannedScoring& planned);

// "int8", or "int8 with 2 of 24 linear layers in bf16".
std::string describe(const inference::PrecisionPlan& plan, int64_t num_layers);

}  // namespace strake::scoring
