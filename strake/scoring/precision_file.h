#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/inference/precision.h"
#include "strake/scoring/model_fingerprint.h"
#include "strake/scoring/scoring_task.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::scoring {

// strake_precision.json, which `strake evaluate --calibrate` writes beside a model: how near bf16 and int8 come to fp32
// on some data, and which linear layers stay in bf16 for it.
inline constexpr const char* kPrecisionFile = "strake_precision.json";

// What a lower precision promises of the data that it was measured on.
inline constexpr double kLeastBf16Agreement = 0.998;  // of TaskResults::agreement()
inline constexpr double kLeastInt8Agreement = 0.99;
inline constexpr double kMostAccuracyChange = 0.005;
inline constexpr double kMostCorrelationChange = 0.005;
inline constexpr double kMostF1Change = 0.5;  // of answers, in percent
// Fewer rows say nothing of others. One of 500 is the 0.2 % that may differ in bf16; where none of 500 differs, at most
// 0.6 % of others do, with a confidence of 95 % (3 / rows).
inline constexpr int64_t kFewestRows = 500;

// What a measurement is of. Another head on the same encoder is another measurement.
struct MeasuredTask {
  ScoringTask task = ScoringTask::kTextClassification;
  std::optional<inference::Pooling> pooling = std::nullopt;  // of feature-extraction

  static MeasuredTask of(const TaskHead& task);
  bool operator==(const MeasuredTask&) const = default;
  std::string text() const;             // "feature-extraction with mean pooling"
  const char* agreement_name() const;   // "agreement" or "centred_cosine"
  const char* difference_name() const;  // "logit_difference" or "number_difference"
};

// What a measurement depends on beside model and task.
struct MeasuredWith {
  std::string tokenizer_fingerprint;
  int64_t max_seq_length = 0;
  std::string kernels;  // the best instruction set, or the GPU: others round a little differently

  static MeasuredWith of(const tokenizers::Tokenizer& tokenizer, int64_t max_seq_length, std::string kernels);
};

// A precision's results against those of fp32.
struct Closeness {
  std::optional<double> agreement;  // none for regression
  double max_difference = 0;        // of the numbers that the head gives
  double mean_difference = 0;
  double metric = 0;  // NaN where it is undefined
};

struct PrecisionRecord {
  MeasuredTask task;
  ModelFingerprint model;
  MeasuredWith with;
  int64_t rows = 0;
  std::string metric;  // "accuracy", "pearson", "spearmanr", "f1" or "" without one
  double fp32_metric = 0;
  Closeness bf16, int8;
  std::vector<inference::LinearName> bf16_linears;  // of int8

  // The promise of a precision, bf16 or int8, on the rows that were measured.
  bool holds(inference::Precision precision, const Closeness& closeness) const;
  // They are enough to expect the same of others.
  bool has_enough_rows() const { return rows >= kFewestRows; }
  const Closeness& of(inference::Precision precision) const;
};

Json to_json(const PrecisionRecord& record);
// What a run in bf16 or int8 may be expected to give, for its manifest.
Json accuracy_json(const PrecisionRecord& record, inference::Precision precision);
// Errors (kConfig) name `source` and what is wrong. `num_layers` is the model's.
PrecisionRecord parse_precision_record(const Json& document, int64_t num_layers, const std::string& source);

// "99.81 % of 1066 rows have fp32's class, accuracy 0.8912 (fp32: 0.8930)"
std::string describe(const PrecisionRecord& record, const Closeness& closeness);

}  // namespace strake::scoring
