#include "strake/scoring/precision_choice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

using inference::Precision;
using inference::PrecisionPlan;

constexpr std::array kNames{"fp32", "bf16", "int8", "auto"};
constexpr const char* kHowToMeasure = "strake evaluate --calibrate measures it and writes the file";

std::optional<PrecisionRecord> read_record(const fs::path& path, int64_t num_layers) {
  if (!is_there(path)) return std::nullopt;
  try {
    return parse_precision_record(read_json(path, kMaxConfigBytes), num_layers, path.string());
  } catch (const Error& error) {
    throw Error(
        error.kind(),
        fmt::format("{}; delete the file, or measure again: strake evaluate --calibrate writes it", error.what()));
  }
}

// Why a record is not believed, as the end of a sentence about its file; "" if it is.
std::string doubt_about(const PrecisionRecord& record, const PlannedScoring& planned) {
  if (record.task != planned.task) return fmt::format("was measured for {}", record.task.text());
  if (record.with.tokenizer_fingerprint != planned.with.tokenizer_fingerprint) {
    return "was measured with another tokenizer than the one in this folder";
  }
  if (record.model != fingerprint_of(planned.folder)) {
    return "was measured for other weights or another config.json than those in this folder";
  }
  return "";
}

// What a record that is believed was measured with, where this run does otherwise.
std::vector<std::string> notices_about(const MeasuredWith& measured, const MeasuredWith& now) {
  std::vector<std::string> notices;
  if (measured.max_seq_length != now.max_seq_length) {
    notices.push_back(fmt::format(
        "it was measured with --max_seq_length {}, and this run has {}{}", measured.max_seq_length, now.max_seq_length,
        now.max_seq_length > measured.max_seq_length ? ": nothing is known of longer texts" : ""));
  }
  if (measured.kernels != now.kernels) {
    notices.push_back(fmt::format("it was measured with the kernels {}, and this run has {}: they round differently",
                                  printable(measured.kernels), now.kernels));
  }
  return notices;
}

const PrecisionChoice kFp32{.plan = {.precision = Precision::kFp32}, .accuracy = {}};

// Chooses by the record in a file, if it is there.
class RecordedChoice {
 public:
  RecordedChoice(fs::path file, const PlannedScoring& planned)
      : file_(std::move(file)),
        planned_(planned),
        record_(read_record(file_, planned.num_layers)),
        doubt_(record_ ? doubt_about(*record_, planned) : "") {}

  PrecisionChoice int8() const {
    if (!record_ || record_->task != planned_.task) {
      const std::string other = record_ ? fmt::format(", but one for {}", record_->task.text()) : "";
      log::warning("{} has no {} for {}{}: nothing is known about its accuracy in int8. {}",
                   file_.parent_path().string(), name(), planned_.task.text(), other, kHowToMeasure);
      return unmeasured(Precision::kInt8);
    }
    require(doubt_.empty(), ErrorKind::kConfig, "{} {}. Delete it, or measure again with strake evaluate --calibrate",
            file_.string(), doubt_);
    return measured(Precision::kInt8);
  }

  PrecisionChoice bf16() const {
    if (record_ && doubt_.empty()) return measured(Precision::kBf16);
    if (record_) {
      log::warning("{} {}: nothing is known about its accuracy in bf16. {}", file_.string(), doubt_, kHowToMeasure);
    }
    return unmeasured(Precision::kBf16);
  }

  PrecisionChoice automatic() const {
    const bool fast = planned_.on_gpu || usable(Isa::kAvx512Bf16) || usable(Isa::kAmx);
    if (!record_ || !doubt_.empty()) {
      const std::string unknown =
          record_ ? fmt::format("{} {}: {}", name(), doubt_, kHowToMeasure) : fmt::format("there is no {}", name());
      const std::string has_bf16 = planned_.on_gpu ? "GPUs have it" : "this processor has instructions for it";
      return fast ? chose(unmeasured(Precision::kBf16), has_bf16 + ", and " + unknown)
                  : chose(kFp32, "this processor has no instructions for bf16, and " + unknown);
    }
    const bool int8_holds = record_->holds(Precision::kInt8, record_->int8);
    if (!planned_.on_gpu && int8_holds && record_->has_enough_rows()) {
      return chose(measured(Precision::kInt8), fmt::format("of {}: {}", name(), describe(*record_, record_->int8)));
    }
    std::string no_int8 =
        fmt::format("int8 was measured on {} rows, and {} are needed to rely on it", record_->rows, kFewestRows);
    if (!int8_holds) no_int8 = "int8 is not near enough";
    if (planned_.on_gpu) no_int8 = "GPUs have no int8";
    if (!fast) return chose(kFp32, no_int8 + ", and this processor has no instructions for bf16");
    const bool holds = record_->holds(Precision::kBf16, record_->bf16);
    return chose(holds ? measured(Precision::kBf16) : kFp32,
                 fmt::format("{}, and {} says of bf16: {}", no_int8, name(), describe(*record_, record_->bf16)));
  }

 private:
  std::string name() const { return file_.filename().string(); }

  static PrecisionChoice chose(PrecisionChoice choice, const std::string& why) {
    log::info("--precision auto: {}, because {}", to_string(choice.plan.precision), why);
    return choice;
  }

  PrecisionChoice unmeasured(Precision precision) const {
    PrecisionChoice choice{.plan = {.precision = precision}, .accuracy = {{"measured", false}}};
    if (!doubt_.empty()) choice.accuracy["why"] = fmt::format("{} {}", name(), doubt_);
    return choice;
  }

  PrecisionChoice measured(Precision precision) const {
    PrecisionChoice choice{.plan = {.precision = precision}, .accuracy = accuracy_json(*record_, precision)};
    if (precision == Precision::kInt8) choice.plan.bf16_linears = record_->bf16_linears;
    if (!record_->holds(precision, record_->of(precision))) {
      log::warning("{} is not near enough to fp32 for this model, says {}: {}", to_string(precision), name(),
                   describe(*record_, record_->of(precision)));
    } else if (!record_->has_enough_rows()) {
      log::warning(
          "{} was measured on {} rows, which are too few to promise anything of others: take {} or more with "
          "strake evaluate --calibrate",
          to_string(precision), record_->rows, kFewestRows);
    }
    const std::vector<std::string> notices = notices_about(record_->with, planned_.with);
    for (const std::string& notice : notices) log::warning("{} of {}: {}", name(), to_string(precision), notice);
    if (!notices.empty()) choice.accuracy["notices"] = notices;
    return choice;
  }

  fs::path file_;
  const PlannedScoring& planned_;
  std::optional<PrecisionRecord> record_;
  std::string doubt_;  // as of doubt_about()
};

}  // namespace

void PrecisionFlags::validate() const {
  const bool known = precision.empty() || std::ranges::find(kNames, precision) != kNames.end();
  require(known, ErrorKind::kUsage, "--precision {} is none of {}", printable(precision), fmt::join(kNames, ", "));
  require(!bf16 || precision.empty() || precision == "bf16", ErrorKind::kUsage,
          "--bf16 contradicts --precision {}; it is short for --precision bf16", precision);
}

fs::path PrecisionFlags::file_of(const fs::path& model) const {
  return file.empty() ? model / kPrecisionFile : fs::path(file);
}

PrecisionChoice choose_precision(const PrecisionFlags& flags, const PlannedScoring& planned) {
  flags.validate();
  const bool is_fp32 = flags.precision == "fp32" || (flags.precision.empty() && !flags.bf16);
  require(flags.file.empty() || !is_fp32, ErrorKind::kUsage,
          "--precision_file {} is of --precision auto, int8 and bf16, and this run computes in fp32",
          printable(flags.file));
  if (is_fp32) return kFp32;
  require(flags.file.empty() || is_there(flags.file), ErrorKind::kIo,
          "--precision_file {} is not there: strake evaluate --calibrate writes it", printable(flags.file));
  const RecordedChoice recorded(flags.file_of(planned.folder), planned);
  if (flags.precision == "auto") return recorded.automatic();
  return flags.precision == "int8" ? recorded.int8() : recorded.bf16();
}

std::string describe(const PrecisionPlan& plan, int64_t num_layers) {
  if (plan.bf16_linears.empty()) return to_string(plan.precision);
  return fmt::format("{} with {} of {} linear layers in bf16", to_string(plan.precision), plan.bf16_linears.size(),
                     num_layers * inference::kLinears);
}

}  // namespace strake::scoring
