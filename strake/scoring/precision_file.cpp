#include "strake/scoring/precision_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <variant>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"

namespace strake::scoring {
namespace {

constexpr int64_t kVersion = 1;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// JSON has no NaN: null stands for it.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// The metrics of tasks that have one, and by how much a lower precision may change them.
constexpr const char* kMetricOfLabels = "f1";  // of several labels of a text, and of entities
struct Metric {
  ScoringTask task;
  const char* name;
  double most_change;
  bool has_agreement;
};
constexpr std::array kMetrics{Metric{ScoringTask::kTextClassification, "accuracy", kMostAccuracyChange, true},
                              Metric{ScoringTask::kTextClassification, "pearson", kMostCorrelationChange, false},
                              Metric{ScoringTask::kTextClassification, kMetricOfLabels, kMostAccuracyChange, true},
                              Metric{ScoringTask::kTokenClassification, kMetricOfLabels, kMostAccuracyChange, true},
                              Metric{ScoringTask::kFeatureExtraction, "spearmanr", kMostCorrelationChange, true},
                              Metric{ScoringTask::kQuestionAnswering, "f1", kMostF1Change, true}};

const Metric* find_metric(ScoringTask task, const std::string& name) {
  const auto* const found =
      std::ranges::find_if(kMetrics, [&](const Metric& metric) { return metric.task == task && metric.name == name; });
  return found == kMetrics.end() ? nullptr : found;
}

std::string difference_key(const char* which, const MeasuredTask& task) {
  return fmt::format("{}_{}", which, task.difference_name());
}

Json to_json(const Closeness& closeness, const PrecisionRecord& record) {
  Json json{{difference_key("max", record.task), number(closeness.max_difference)},
            {difference_key("mean", record.task), number(closeness.mean_difference)}};
  if (!record.metric.empty()) json["metric"] = number(closeness.metric);
  if (closeness.agreement) json[record.task.agreement_name()] = *closeness.agreement;
  return json;
}

const char* name_of(inference::Pooling pooling) { return pooling == inference::Pooling::kMean ? "mean" : "cls"; }

Json section(const Json& document, const char* key, const std::string& source) {
  const Json value = get_required<Json>(document, key, source);
  require(value.is_object(), ErrorKind::kConfig, "{}: key '{}' is not an object", source, key);
  return value;
}

MeasuredTask parse_measured_task(const Json& document, const std::string& source) {
  MeasuredTask measured;
  const auto name = get_required<std::string>(document, "task", source);
  const auto task = find_task(name);
  require(task.has_value(), ErrorKind::kConfig, "{}: task '{}' is none that strake scores", source, printable(name));
  measured.task = *task;
  const bool pools = measured.task == ScoringTask::kFeatureExtraction;
  require(pools == document.contains("pooling"), ErrorKind::kConfig, "{}: key 'pooling' {} for {}", source,
          pools ? "is missing" : "makes no sense", name);
  if (!pools) return measured;
  const auto pooling = get_required<std::string>(document, "pooling", source);
  for (const inference::Pooling known : {inference::Pooling::kMean, inference::Pooling::kFirst}) {
    if (pooling == name_of(known)) measured.pooling = known;
  }
  require(measured.pooling.has_value(), ErrorKind::kConfig, "{}: pooling '{}' is neither mean nor cls", source,
          printable(pooling));
  return measured;
}

MeasuredWith parse_measured_with(const Json& document, const std::string& source) {
  const Json json = section(document, "measured_with", source);
  const auto length = get_required<int64_t>(json, "max_seq_length", source);
  require(length > 0, ErrorKind::kConfig, "{}: key 'max_seq_length' is {}", source, length);
  return {.tokenizer_fingerprint = get_required<std::string>(json, "tokenizer_fingerprint", source),
          .max_seq_length = length,
          .kernels = get_required<std::string>(json, "kernels", source)};
}

Closeness parse_closeness(const Json& document, const char* key, const MeasuredTask& task, const std::string& source) {
  const Json json = section(document, key, source);
  Closeness closeness{.max_difference = get_or<double>(json, difference_key("max", task).c_str(), kNaN, source),
                      .mean_difference = get_or<double>(json, difference_key("mean", task).c_str(), kNaN, source),
                      .metric = get_or<double>(json, "metric", kNaN, source)};
  const char* agreement = task.agreement_name();
  if (json.contains(agreement)) closeness.agreement = get_required<double>(json, agreement, source);
  require(!closeness.agreement || (*closeness.agreement >= 0 && *closeness.agreement <= 1), ErrorKind::kConfig,
          "{}: {} of {} is {}, which is not from 0 to 1", source, agreement, key, closeness.agreement.value_or(0));
  return closeness;
}

// "" if the file says that there is none.
std::string parse_metric(const Json& document, const MeasuredTask& task, const std::string& source) {
  const bool is_classifier = task.task == ScoringTask::kTextClassification;
  const bool is_none = !is_classifier && document.contains("metric") && document.at("metric").is_null();
  if (is_none) return "";
  const auto metric = get_required<std::string>(document, "metric", source);
  require(find_metric(task.task, metric) != nullptr, ErrorKind::kConfig, "{}: '{}' is no metric of {}", source,
          printable(metric), to_string(task.task));
  return metric;
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

MeasuredTask MeasuredTask::of(const TaskHead& task) {
  MeasuredTask measured{.task = task.task};
  if (const auto* pooled = std::get_if<inference::PooledHead>(&task.head)) measured.pooling = pooled->pooling;
  return measured;
}

std::string MeasuredTask::text() const {
  return pooling ? fmt::format("{} with {} pooling", to_string(task), name_of(*pooling)) : to_string(task);
}

const char* MeasuredTask::agreement_name() const {
  return task == ScoringTask::kFeatureExtraction ? "centred_cosine" : "agreement";
}

const char* MeasuredTask::difference_name() const {
  return task == ScoringTask::kFeatureExtraction ? "number_difference" : "logit_difference";
}

MeasuredWith MeasuredWith::of(const tokenizers::Tokenizer& tokenizer, int64_t max_seq_length, std::string kernels) {
  return {.tokenizer_fingerprint = tokenizer.fingerprint(),
          .max_seq_length = max_seq_length,
          .kernels = std::move(kernels)};
}

bool PrecisionRecord::holds(inference::Precision precision, const Closeness& closeness) const {
  const double least = precision == inference::Precision::kInt8 ? kLeastInt8Agreement : kLeastBf16Agreement;
  if (closeness.agreement.value_or(1) < least) return false;
  if (metric.empty()) return closeness.agreement.has_value();
  return std::abs(closeness.metric - fp32_metric) <= find_metric(task.task, metric)->most_change;
}

const Closeness& PrecisionRecord::of(inference::Precision precision) const {
  return precision == inference::Precision::kInt8 ? int8 : bf16;
}

Json accuracy_json(const PrecisionRecord& record, inference::Precision precision) {
  Json json = to_json(record.of(precision), record);
  json["measured"] = true;
  json["rows"] = record.rows;
  json["max_seq_length"] = record.with.max_seq_length;
  json["kernels"] = record.with.kernels;
  json["enough_rows"] = record.has_enough_rows();
  json["keeps_promise"] = record.has_enough_rows() && record.holds(precision, record.of(precision));
  if (record.metric.empty()) return json;
  json["metric_name"] = record.metric;
  json["fp32_metric"] = number(record.fp32_metric);
  return json;
}

Json to_json(const PrecisionRecord& record) {
  Json linears = Json::array();
  for (const inference::LinearName& name : record.bf16_linears) {
    linears.push_back({{"layer", name.layer}, {"linear", inference::to_string(name.linear)}});
  }
  const bool has_metric = !record.metric.empty();
  Json document{{"version", kVersion},
                {"task", to_string(record.task.task)},
                {"model",
                 {{"weight_bytes", record.model.weight_bytes},
                  {"weight_crc32c", record.model.weight_crc32c},
                  {"config_crc32c", record.model.config_crc32c}}},
                {"measured_with",
                 {{"tokenizer_fingerprint", record.with.tokenizer_fingerprint},
                  {"max_seq_length", record.with.max_seq_length},
                  {"kernels", record.with.kernels}}},
                {"rows", record.rows},
                {"metric", has_metric ? Json(record.metric) : Json()},
                {"bf16", to_json(record.bf16, record)},
                {"int8", to_json(record.int8, record)}};
  if (record.task.pooling) document["pooling"] = name_of(*record.task.pooling);
  if (has_metric) document["fp32"] = {{"metric", number(record.fp32_metric)}};
  document["int8"]["bf16_linears"] = std::move(linears);
  return document;
}

PrecisionRecord parse_precision_record(const Json& document, int64_t num_layers, const std::string& source) {
  require(document.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  const auto version = get_required<int64_t>(document, "version", source);
  require(version == kVersion, ErrorKind::kConfig, "{}: version {} is not {}", source, version, kVersion);
  const Json model = section(document, "model", source);
  const MeasuredTask task = parse_measured_task(document, source);
  PrecisionRecord record{.task = task,
                         .model = {.weight_bytes = whole_number<int64_t>(model, "weight_bytes", source),
                                   .weight_crc32c = whole_number<uint32_t>(model, "weight_crc32c", source),
                                   .config_crc32c = whole_number<uint32_t>(model, "config_crc32c", source)},
                         .with = parse_measured_with(document, source),
                         .rows = whole_number<int64_t>(document, "rows", source),
                         .metric = parse_metric(document, task, source),
                         .bf16 = parse_closeness(document, "bf16", task, source),
                         .int8 = parse_closeness(document, "int8", task, source),
                         .bf16_linears = parse_linears(section(document, "int8", source), num_layers, source)};
  const Metric* metric = find_metric(task.task, record.metric);
  if (metric != nullptr) record.fp32_metric = get_or<double>(section(document, "fp32", source), "metric", kNaN, source);
  const bool expected = metric == nullptr || metric->has_agreement;
  require(record.bf16.agreement.has_value() == expected && record.int8.agreement.has_value() == expected,
          ErrorKind::kConfig, "{}: numbers have no agreement, all else has one", source);
  return record;
}

std::string describe(const PrecisionRecord& record, const Closeness& closeness) {
  std::string text;
  if (closeness.agreement) {
    const double percent = 100 * *closeness.agreement;
    switch (record.task.task) {
      case ScoringTask::kTokenClassification:
        text = fmt::format("{:.2f} % of the tokens of {} rows have fp32's label", percent, record.rows);
        break;
      case ScoringTask::kQuestionAnswering:
        text = fmt::format("{:.2f} % of {} rows have fp32's answer", percent, record.rows);
        break;
      case ScoringTask::kFeatureExtraction:
        text = fmt::format("the centred cosine with fp32's vectors of {} rows is {:.4f}", record.rows,
                           *closeness.agreement);
        break;
      default:
        text = fmt::format("{:.2f} % of {} rows have fp32's {}", percent, record.rows,
                           record.metric == kMetricOfLabels ? "labels" : "class");
    }
  }
  if (record.metric.empty()) return text;
  const std::string metric =
      fmt::format("{} {:.4f} (fp32: {:.4f})", record.metric, closeness.metric, record.fp32_metric);
  return text.empty() ? fmt::format("{} on {} rows", metric, record.rows) : fmt::format("{}, {}", text, metric);
}

}  // namespace strake::scoring
