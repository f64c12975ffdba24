#include "strake/tasks/precision_choice.h"

#include <algorithm>
#include <array>
#include <optional>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake::tasks {
namespace fs = std::filesystem;
namespace {

using inference::Precision;
using inference::PrecisionPlan;

constexpr std::array kNames{"fp32", "bf16", "int8", "auto"};
constexpr const char* kHowToMeasure = "strake evaluate --calibrate measures it on labelled data and writes the file";

std::optional<PrecisionRecord> read_record(const fs::path& folder, int64_t num_layers) {
  const fs::path path = folder / kPrecisionFile;
  if (!is_there(path)) return std::nullopt;
  return parse_precision_record(read_json(path, kMaxConfigBytes), num_layers, path.string());
}

PrecisionPlan int8_plan(const PrecisionRecord& record) {
  return {.precision = Precision::kInt8, .bf16_linears = record.bf16_linears};
}

PrecisionPlan choose_int8(const fs::path& folder, int64_t num_layers) {
  const auto record = read_record(folder, num_layers);
  if (!record) {
    log::warning("{} has no {}: nothing is known about its accuracy in int8. {}", folder.string(), kPrecisionFile,
                 kHowToMeasure);
    return {.precision = Precision::kInt8};
  }
  require(record->model == fingerprint_of(folder), ErrorKind::kConfig,
          "{} was measured for other weights or another config.json than those in this folder. Delete it, or measure "
          "again with strake evaluate --calibrate",
          (folder / kPrecisionFile).string());
  if (!record->holds(record->int8)) {
    log::warning("int8 is not near enough to fp32 for this model, says {}: {}", kPrecisionFile,
                 describe(*record, record->int8));
  }
  return int8_plan(*record);
}

PrecisionPlan choose_freely(const fs::path& folder, int64_t num_layers) {
  const auto chose = [](PrecisionPlan plan, const std::string& why) {
    log::info("--precision auto: {}, because {}", to_string(plan.precision), why);
    return plan;
  };
  const auto record = read_record(folder, num_layers);
  const bool current = record && record->model == fingerprint_of(folder);
  if (current && record->holds(record->int8)) {
    return chose(int8_plan(*record), fmt::format("of {}: {}", kPrecisionFile, describe(*record, record->int8)));
  }
  const bool fast = usable(Isa::kAvx512Bf16) || usable(Isa::kAmx);
  if (!fast) return chose({}, "neither int8 is known to be near enough nor has this processor instructions for bf16");
  if (current && !record->holds(record->bf16)) {
    return chose({}, fmt::format("{} says of bf16: {}", kPrecisionFile, describe(*record, record->bf16)));
  }
  const char* file = !record ? "there is no" : current ? "int8 is not near enough, says" : "for other weights is the";
  return chose({.precision = Precision::kBf16},
               fmt::format("this processor has instructions for it, and {} {}", file, kPrecisionFile));
}

}  // namespace

void PrecisionFlags::validate() const {
  const bool known = precision.empty() || std::ranges::find(kNames, precision) != kNames.end();
  require(known, ErrorKind::kUsage, "--precision {} is none of {}", printable(precision), fmt::join(kNames, ", "));
  require(!bf16 || precision.empty() || precision == "bf16", ErrorKind::kUsage,
          "--bf16 contradicts --precision {}; it is short for --precision bf16", precision);
}

PrecisionPlan choose_precision(const PrecisionFlags& flags, const fs::path& folder, int64_t num_layers) {
  flags.validate();
  if (flags.precision == "auto") return choose_freely(folder, num_layers);
  if (flags.precision == "int8") return choose_int8(folder, num_layers);
  return {.precision = flags.bf16 || flags.precision == "bf16" ? Precision::kBf16 : Precision::kFp32};
}

std::string describe(const PrecisionPlan& plan, int64_t num_layers) {
  if (plan.bf16_linears.empty()) return to_string(plan.precision);
  return fmt::format("{} with {} of {} linear layers in bf16", to_string(plan.precision), plan.bf16_linears.size(),
                     num_layers * inference::kLinears);
}

}  // namespace strake::tasks
