#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/inference/precision.h"
#include "strake/tasks/model_fingerprint.h"

namespace strake::tasks {

// strake_precision.json, which `strake evaluate --calibrate` writes beside a model: how near bf16 and int8 come to fp32
// on some labelled data, and which linear layers stay in bf16 for it. Nothing in it depends on the processor.
inline constexpr const char* kPrecisionFile = "strake_precision.json";

// What a lower precision promises of the data that it was measured on.
inline constexpr double kLeastAgreement = 0.99;  // share of rows with the same class as in fp32
inline constexpr double kMostAccuracyChange = 0.005;
inline constexpr double kMostPearsonChange = 0.005;

// A precision's results against those of fp32.
struct Closeness {
  std::optional<double> agreement;  // share of rows with the same class; none for regression
  double max_logit_difference = 0;
  double mean_logit_difference = 0;
  double metric = 0;  // NaN where it is undefined
};

struct PrecisionRecord {
  ModelFingerprint model;
  int64_t rows = 0;
  std::string metric;  // "accuracy" or "pearson"
  double fp32_metric = 0;
  Closeness bf16, int8;
  std::vector<inference::LinearName> bf16_linears;  // of int8

  bool holds(const Closeness& closeness) const;  // the promise
};

Json to_json(const PrecisionRecord& record);
// Errors (kConfig) name `source` and what is wrong. `num_layers` is the model's.
PrecisionRecord parse_precision_record(const Json& document, int64_t num_layers, const std::string& source);

// "99.81 % of 1,066 rows have fp32's class, accuracy 0.8912 (fp32: 0.8930)"
std::string describe(const PrecisionRecord& record, const Closeness& closeness);

}  // namespace strake::tasks
