#include "strake/scoring/precision_choice.h"

#include <algorithm>
#include <array>
#include <optional>
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

std::optional<PrecisionRecord> read_record(const PlannedScoring& planned) {
  const fs::path path = planned.folder / kPrecisionFile;
  if (!is_there(path)) return std::nullopt;
  try {
    return parse_precision_record(read_json(path, kMaxConfigBytes), planned.num_layers, path.string());
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

PrecisionChoice unmeasured(Precision precision, const std::string& doubt = "") {
  PrecisionChoice choice{.plan = {.precision = precision}, .accuracy = {{"measured", false}}};
  if (!doubt.empty()) choice.accuracy["why"] = fmt::format("{} {}", kPrecisionFile, doubt);
  return choice;
}
const PrecisionChoice kFp32{.plan = {.precision = Precision::kFp32}, .accuracy = {}};

PrecisionChoice measured(Precision precision, const PrecisionRecord& record, const PlannedScoring& planned) {
  PrecisionChoice choice{.plan = {.precision = precision}, .accuracy = accuracy_json(record, precision)};
  if (precision == Precision::kInt8) choice.plan.bf16_linears = record.bf16_linears;
  if (!record.holds(precision, record.of(precision))) {
    log::warning("{} is not near enough to fp32 for this model, says {}: {}", to_string(precision), kPrecisionFile,
                 describe(record, record.of(precision)));
  } else if (!record.has_enough_rows()) {
    log::warning(
        "{} was measured on {} rows, which are too few to promise anything of others: take {} or more with "
        "strake evaluate --calibrate",
        to_string(precision), record.rows, kFewestRows);
  }
  const std::vector<std::string> notices = notices_about(record.with, planned.with);
  for (const std::string& notice : notices) log::warning("{} of {}: {}", kPrecisionFile, to_string(precision), notice);
  if (!notices.empty()) choice.accuracy["notices"] = notices;
  return choice;
}

PrecisionChoice choose_int8(const PlannedScoring& planned) {
  const auto record = read_record(planned);
  if (!record || record->task != planned.task) {
    const std::string other = record ? fmt::format(", but one for {}", record->task.text()) : "";
    log::warning("{} has no {} for {}{}: nothing is known about its accuracy in int8. {}", planned.folder.string(),
                 kPrecisionFile, planned.task.text(), other, kHowToMeasure);
    return unmeasured(Precision::kInt8, record ? doubt_about(*record, planned) : "");
  }
  const std::string doubt = doubt_about(*record, planned);
  require(doubt.empty(), ErrorKind::kConfig, "{} {}. Delete it, or measure again with strake evaluate --calibrate",
          (planned.folder / kPrecisionFile).string(), doubt);
  return measured(Precision::kInt8, *record, planned);
}

PrecisionChoice choose_bf16(const PlannedScoring& planned) {
  const auto record = read_record(planned);
  if (!record) return unmeasured(Precision::kBf16);
  const std::string doubt = doubt_about(*record, planned);
  if (doubt.empty()) return measured(Precision::kBf16, *record, planned);
  log::warning("{} {}: nothing is known about its accuracy in bf16. {}", (planned.folder / kPrecisionFile).string(),
               doubt, kHowToMeasure);
  return unmeasured(Precision::kBf16, doubt);
}

PrecisionChoice choose_freely(const PlannedScoring& planned) {
  const auto chose = [](PrecisionChoice choice, const std::string& why) {
    log::info("--precision auto: {}, because {}", to_string(choice.plan.precision), why);
    return choice;
  };
  const bool fast = planned.on_gpu || usable(Isa::kAvx512Bf16) || usable(Isa::kAmx);
  const std::string has_bf16 = planned.on_gpu ? "GPUs have it" : "this processor has instructions for it";
  const auto record = read_record(planned);
  const std::string doubt = record ? doubt_about(*record, planned) : "";
  if (!record || !doubt.empty()) {
    const std::string unknown = record ? fmt::format("{} {}: {}", kPrecisionFile, doubt, kHowToMeasure)
                                       : fmt::format("there is no {}", kPrecisionFile);
    return fast ? chose(unmeasured(Precision::kBf16, doubt), has_bf16 + ", and " + unknown)
                : chose(kFp32, "this processor has no instructions for bf16, and " + unknown);
  }
  const bool int8_holds = record->holds(Precision::kInt8, record->int8);
  if (!planned.on_gpu && int8_holds && record->has_enough_rows()) {
    return chose(measured(Precision::kInt8, *record, planned),
                 fmt::format("of {}: {}", kPrecisionFile, describe(*record, record->int8)));
  }
  std::string no_int8 =
      fmt::format("int8 was measured on {} rows, and {} are needed to rely on it", record->rows, kFewestRows);
  if (!int8_holds) no_int8 = "int8 is not near enough";
  if (planned.on_gpu) no_int8 = "GPUs have no int8";
  if (!fast) return chose(kFp32, no_int8 + ", and this processor has no instructions for bf16");
  const bool holds = record->holds(Precision::kBf16, record->bf16);
  return chose(holds ? measured(Precision::kBf16, *record, planned) : kFp32,
               fmt::format("{}, and {} says of bf16: {}", no_int8, kPrecisionFile, describe(*record, record->bf16)));
}

}  // namespace

void PrecisionFlags::validate() const {
  const bool known = precision.empty() || std::ranges::find(kNames, precision) != kNames.end();
  require(known, ErrorKind::kUsage, "--precision {} is none of {}", printable(precision), fmt::join(kNames, ", "));
  require(!bf16 || precision.empty() || precision == "bf16", ErrorKind::kUsage,
          "--bf16 contradicts --precision {}; it is short for --precision bf16", precision);
}

PrecisionChoice choose_precision(const PrecisionFlags& flags, const PlannedScoring& planned) {
  flags.validate();
  if (flags.precision == "auto") return choose_freely(planned);
  if (flags.precision == "int8") return choose_int8(planned);
  return flags.asks_for_bf16() ? choose_bf16(planned) : kFp32;
}

std::string describe(const PrecisionPlan& plan, int64_t num_layers) {
  if (plan.bf16_linears.empty()) return to_string(plan.precision);
  return fmt::format("{} with {} of {} linear layers in bf16", to_string(plan.precision), plan.bf16_linears.size(),
                     num_layers * inference::kLinears);
}

}  // namespace strake::scoring
