#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/inference/precision.h"

namespace strake::tasks {

// strake_precision.json, which `strake evaluate --calibrate` writes beside a model: how near bf16 and int8 come to fp32
// on some labelled data, and which linear layers stay in bf16 for it. Nothing in it depends on the processor.
inline constexpr const char* kPrecisionFile = "strake_precision.json";

// What a lower precision promises of the data that it was measured on.
inline constexpr double kLeastAgreement = 0.99;  // share of rows with the same class as in fp32
inline constexpr double kMostAccuracyChange = 0.005;
inline constexpr double kMostPearsonChange = 0.005;

// Which weights and configuration something was measured for.
struct ModelFingerprint {
  int64_t weight_bytes = 0;
  uint32_t weight_crc32c = 0;  // of the *.safetensors files, one after the other by name
  uint32_t config_crc32c = 0;

  bool operator==(const ModelFingerprint&) const = default;
};
// Reads all weights once. Errors: kIo.
ModelFingerprint fingerprint_of(const std::filesystem::path& folder);

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
