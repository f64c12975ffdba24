#include "strake/tasks/precision_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strake/core/error.h"

namespace strake::tasks {
namespace {

constexpr int64_t kVersion = 1;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// JSON has no NaN: null stands for it.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json to_json(const Closeness& closeness) {
  Json json{{"max_logit_difference", number(closeness.max_logit_difference)},
            {"mean_logit_difference", number(closeness.mean_logit_difference)},
            {"metric", number(closeness.metric)}};
  if (closeness.agreement) json["agreement"] = *closeness.agreement;
  return json;
}

Json section(const Json& document, const char* key, const std::string& source) {
  const Json value = get_required<Json>(document, key, source);
  require(value.is_object(), ErrorKind::kConfig, "{}: key '{}' is not an object", source, key);
  return value;
}

Closeness parse_closeness(const Json& document, const char* key, const std::string& source) {
  const Json json = section(document, key, source);
  Closeness closeness{.max_logit_difference = get_or<double>(json, "max_logit_difference", kNaN, source),
                      .mean_logit_difference = get_or<double>(json, "mean_logit_difference", kNaN, source),
                      .metric = get_or<double>(json, "metric", kNaN, source)};
  if (json.contains("agreement")) closeness.agreement = get_required<double>(json, "agreement", source);
  require(!closeness.agreement || (*closeness.agreement >= 0 && *closeness.agreement <= 1), ErrorKind::kConfig,
          "{}: agreement of {} is {}, which is no share", source, key, closeness.agreement.value_or(0));
  return closeness;
}

std::vector<inference::LinearName> parse_linears(const Json& json, int64_t num_layers, const std::string& source) {
  const Json list = get_required<Json>(json, "bf16_linears", source);
  require(list.is_array(), ErrorKind::kConfig, "{}: bf16_linears is not a list", source);
  std::vector<inference::LinearName> names;
  for (const Json& item : list) {
    const auto text = get_required<std::string>(item, "linear", source);
    const auto linear = inference::parse_linear(text);
    require(linear.has_value(), ErrorKind::kConfig, "{}: bf16_linears names '{}', which is no linear layer", source,
            printable(text));
    const inference::LinearName name{get_required<int64_t>(item, "layer", source), *linear};
    require(name.layer >= 0 && name.layer < num_layers, ErrorKind::kConfig,
            "{}: bf16_linears names layer {} of a model of {}", source, name.layer, num_layers);
    require(std::ranges::find(names, name) == names.end(), ErrorKind::kConfig, "{}: bf16_linears names {} twice",
            source, name.text());
    names.push_back(name);
  }
  return names;
}

template <typename T>
T whole_number(const Json& json, const char* key, const std::string& source) {
  const auto value = get_required<int64_t>(json, key, source);
  require(value >= 0 && static_cast<uint64_t>(value) <= uint64_t{std::numeric_limits<T>::max()}, ErrorKind::kConfig,
          "{}: key '{}' is {}", source, key, value);
  return static_cast<T>(value);
}

}  // namespace

bool PrecisionRecord::holds(const Closeness& closeness) const {
  const double most = closeness.agreement ? kMostAccuracyChange : kMostPearsonChange;
  return closeness.agreement.value_or(1) >= kLeastAgreement && std::abs(closeness.metric - fp32_metric) <= most;
}

Json to_json(const PrecisionRecord& record) {
  Json linears = Json::array();
  for (const inference::LinearName& name : record.bf16_linears) {
    linears.push_back({{"layer", name.layer}, {"linear", inference::to_string(name.linear)}});
  }
  Json document{{"version", kVersion},
                {"model",
                 {{"weight_bytes", record.model.weight_bytes},
                  {"weight_crc32c", record.model.weight_crc32c},
                  {"config_crc32c", record.model.config_crc32c}}},
                {"rows", record.rows},
                {"metric", record.metric},
                {"fp32", {{"metric", number(record.fp32_metric)}}},
                {"bf16", to_json(record.bf16)},
                {"int8", to_json(record.int8)}};
  document["int8"]["bf16_linears"] = std::move(linears);
  return document;
}

PrecisionRecord parse_precision_record(const Json& document, int64_t num_layers, const std::string& source) {
  require(document.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  const auto version = get_required<int64_t>(document, "version", source);
  require(version == kVersion, ErrorKind::kConfig, "{}: version {} is not {}", source, version, kVersion);
  const Json model = section(document, "model", source);
  PrecisionRecord record{.model = {.weight_bytes = whole_number<int64_t>(model, "weight_bytes", source),
                                   .weight_crc32c = whole_number<uint32_t>(model, "weight_crc32c", source),
                                   .config_crc32c = whole_number<uint32_t>(model, "config_crc32c", source)},
                         .rows = whole_number<int64_t>(document, "rows", source),
                         .metric = get_required<std::string>(document, "metric", source),
                         .fp32_metric = get_or<double>(section(document, "fp32", source), "metric", kNaN, source),
                         .bf16 = parse_closeness(document, "bf16", source),
                         .int8 = parse_closeness(document, "int8", source),
                         .bf16_linears = parse_linears(section(document, "int8", source), num_layers, source)};
  const bool classes = record.metric == "accuracy";
  require(classes || record.metric == "pearson", ErrorKind::kConfig, "{}: metric '{}' is neither accuracy nor pearson",
          source, printable(record.metric));
  require(record.bf16.agreement.has_value() == classes && record.int8.agreement.has_value() == classes,
          ErrorKind::kConfig, "{}: classes have an agreement, numbers have none", source);
  return record;
}

std::string describe(const PrecisionRecord& record, const Closeness& closeness) {
  const std::string metric =
      fmt::format("{} {:.4f} (fp32: {:.4f})", record.metric, closeness.metric, record.fp32_metric);
  if (!closeness.agreement) return fmt::format("{} on {} rows", metric, record.rows);
  return fmt::format("{:.2f} % of {} rows have fp32's class, {}", 100 * *closeness.agreement, record.rows, metric);
}

}  // namespace strake::tasks
