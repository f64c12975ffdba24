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
constexpr const char* kHowToMeasure = "strake evaluate --calibrate measures it and writes the file";

struct Place {
  const fs::path& folder;
  int64_t num_layers;
  const MeasuredTask& task;
};

std::optional<PrecisionRecord> read_record(const Place& place) {
  const fs::path path = place.folder / kPrecisionFile;
  if (!is_there(path)) return std::nullopt;
  return parse_precision_record(read_json(path, kMaxConfigBytes), place.num_layers, path.string());
}

PrecisionChoice unmeasured(Precision precision) {
  return {.plan = {.precision = precision}, .accuracy = {{"measured", false}}};
}
const PrecisionChoice kFp32{.plan = {.precision = Precision::kFp32}, .accuracy = {}};

PrecisionChoice measured(Precision precision, const PrecisionRecord& record) {
  PrecisionChoice choice{.plan = {.precision = precision}, .accuracy = accuracy_json(record, precision)};
  if (precision == Precision::kInt8) choice.plan.bf16_linears = record.bf16_linears;
  return choice;
}

void warn_unless_it_holds(Precision precision, const PrecisionRecord& record) {
  if (record.holds(precision, record.of(precision))) return;
  log::warning("{} is not near enough to fp32 for this model, says {}: {}", to_string(precision), kPrecisionFile,
               describe(record, record.of(precision)));
}

PrecisionChoice choose_int8(const Place& place) {
  const std::string folder = place.folder.string();
  const auto record = read_record(place);
  if (!record || record->task != place.task) {
    const std::string other = record ? fmt::format(", but one for {}", record->task.text()) : "";
    log::warning("{} has no {} for {}{}: nothing is known about its accuracy in int8. {}", folder, kPrecisionFile,
                 place.task.text(), other, kHowToMeasure);
    return unmeasured(Precision::kInt8);
  }
  require(record->model == fingerprint_of(place.folder), ErrorKind::kConfig,
          "{} was measured for other weights or another config.json than those in this folder. Delete it, or measure "
          "again with strake evaluate --calibrate",
          (place.folder / kPrecisionFile).string());
  warn_unless_it_holds(Precision::kInt8, *record);
  return measured(Precision::kInt8, *record);
}

bool is_current(const std::optional<PrecisionRecord>& record, const Place& place) {
  return record && record->task == place.task && record->model == fingerprint_of(place.folder);
}

PrecisionChoice choose_bf16(const Place& place) {
  const auto record = read_record(place);
  if (!is_current(record, place)) return unmeasured(Precision::kBf16);
  warn_unless_it_holds(Precision::kBf16, *record);
  return measured(Precision::kBf16, *record);
}

PrecisionChoice choose_freely(const Place& place) {
  const auto chose = [](PrecisionChoice choice, const std::string& why) {
    log::info("--precision auto: {}, because {}", to_string(choice.plan.precision), why);
    return choice;
  };
  const auto record = read_record(place);
  const bool current = is_current(record, place);
  if (current && record->holds(Precision::kInt8, record->int8)) {
    return chose(measured(Precision::kInt8, *record),
                 fmt::format("of {}: {}", kPrecisionFile, describe(*record, record->int8)));
  }
  const bool fast = usable(Isa::kAvx512Bf16) || usable(Isa::kAmx);
  if (!fast)
    return chose(kFp32, "neither int8 is known to be near enough nor has this processor instructions for bf16");
  if (current) {
    const bool holds = record->holds(Precision::kBf16, record->bf16);
    return chose(holds ? measured(Precision::kBf16, *record) : kFp32,
                 fmt::format("int8 is not near enough, and {} says of bf16: {}", kPrecisionFile,
                             describe(*record, record->bf16)));
  }
  const std::string file = !record                      ? "there is no"
                           : record->task != place.task ? fmt::format("for {} is the", record->task.text())
                                                        : "for other weights is the";
  return chose(unmeasured(Precision::kBf16),
               fmt::format("this processor has instructions for it, and {} {}", file, kPrecisionFile));
}

}  // namespace

void PrecisionFlags::validate() const {
  const bool known = precision.empty() || std::ranges::find(kNames, precision) != kNames.end();
  require(known, ErrorKind::kUsage, "--precision {} is none of {}", printable(precision), fmt::join(kNames, ", "));
  require(!bf16 || precision.empty() || precision == "bf16", ErrorKind::kUsage,
          "--bf16 contradicts --precision {}; it is short for --precision bf16", precision);
}

PrecisionChoice choose_precision(const PrecisionFlags& flags, const fs::path& folder, int64_t num_layers,
                                 const MeasuredTask& task) {
  flags.validate();
  const Place place{folder, num_layers, task};
  if (flags.precision == "auto") return choose_freely(place);
  if (flags.precision == "int8") return choose_int8(place);
  return flags.bf16 || flags.precision == "bf16" ? choose_bf16(place) : kFp32;
}

std::string describe(const PrecisionPlan& plan, int64_t num_layers) {
  if (plan.bf16_linears.empty()) return to_string(plan.precision);
  return fmt::format("{} with {} of {} linear layers in bf16", to_string(plan.precision), plan.bf16_linears.size(),
                     num_layers * inference::kLinears);
}

}  // namespace strake::tasks
