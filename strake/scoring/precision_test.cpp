#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "strake/core/cpu_features.h"
#include "strake/core/file.h"
#include "strake/models/test_model.h"
#include "strake/scoring/precision_choice.h"
#include "strake/scoring/precision_file.h"

namespace strake::scoring::precision_test {
namespace {

using inference::Linear;
using inference::Precision;
using inference::PrecisionPlan;
using models::error_text;
using models::ModelFolder;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLayers = 2;

const MeasuredWith kWith{.tokenizer_fingerprint = "0123abcd", .max_seq_length = 64, .kernels = "avx512_bf16"};

PrecisionRecord good_record() {
  return {.model = {.weight_bytes = 5, .weight_crc32c = 0xFFFFFFFF, .config_crc32c = 7},
          .with = kWith,
          .rows = 1000,
          .metric = "accuracy",
          .fp32_metric = 0.893,
          .bf16 = {.agreement = 0.998, .max_difference = 0.02, .mean_difference = 0.001, .metric = 0.892},
          .int8 = {.agreement = 0.991, .max_difference = 0.3, .mean_difference = 0.01, .metric = 0.89},
          .bf16_linears = {{0, Linear::kOutput}, {1, Linear::kQkv}}};
}

// One of a task without a metric.
PrecisionRecord record_of(const MeasuredTask& task) {
  PrecisionRecord record = good_record();
  record.task = task;
  record.metric = "";
  record.fp32_metric = record.bf16.metric = record.int8.metric = 0;
  return record;
}
const MeasuredTask kTokens{.task = ScoringTask::kTokenClassification};
const MeasuredTask kMeanEmbeddings{.task = ScoringTask::kFeatureExtraction, .pooling = inference::Pooling::kMean};
const MeasuredTask kFirstEmbeddings{.task = ScoringTask::kFeatureExtraction, .pooling = inference::Pooling::kFirst};

PrecisionRecord parsed(const Json& document) { return parse_precision_record(document, kLayers, "file"); }

TEST(PrecisionFile, ReadsWhatItWrites) {
  const PrecisionRecord record = good_record();
  const PrecisionRecord same = parsed(parse_json(to_json(record).dump(), "file"));
  EXPECT_EQ(same.model, record.model);
  EXPECT_EQ(same.bf16_linears, record.bf16_linears);
  EXPECT_EQ(same.int8.agreement, record.int8.agreement);
  EXPECT_EQ(to_json(same), to_json(record));
}

TEST(PrecisionFile, ReadsWhatItWritesOfTasksWithoutAMetric) {
  for (const MeasuredTask& task : {kTokens, kFirstEmbeddings, MeasuredTask{.task = ScoringTask::kQuestionAnswering}}) {
    const PrecisionRecord record = record_of(task);
    EXPECT_TRUE(to_json(record).at("metric").is_null());
    const PrecisionRecord same = parsed(to_json(record));
    EXPECT_EQ(same.task, task);
    EXPECT_EQ(same.metric, "");
    EXPECT_EQ(same.int8.agreement, record.int8.agreement);
    EXPECT_EQ(same.int8.max_difference, record.int8.max_difference);
    EXPECT_EQ(to_json(same), to_json(record));
    EXPECT_TRUE(same.holds(Precision::kInt8, same.int8));
    EXPECT_FALSE(same.holds(Precision::kInt8, {.agreement = 0.98}));
    EXPECT_FALSE(same.holds(Precision::kInt8, {})) << "nothing was measured";
  }
}

TEST(PrecisionFile, AllowsHalfAPointOfF1) {
  PrecisionRecord record = record_of({.task = ScoringTask::kQuestionAnswering});
  record.metric = "f1";
  record.fp32_metric = 88;
  EXPECT_EQ(parsed(to_json(record)).fp32_metric, 88);
  EXPECT_TRUE(record.holds(Precision::kInt8, {.agreement = 0.99, .metric = 87.5}));
  EXPECT_FALSE(record.holds(Precision::kInt8, {.agreement = 0.99, .metric = 87.4}));
  EXPECT_FALSE(record.holds(Precision::kInt8, {.agreement = 0.98, .metric = 88}));
}

TEST(PrecisionFile, SaysWhatItWasMeasuredFor) {
  const Json document = to_json(good_record());
  EXPECT_EQ(parsed(document).task, MeasuredTask());
  EXPECT_EQ(parsed(document).with.max_seq_length, 64);
  EXPECT_EQ(to_json(parsed(document)), document);
  for (const char* key : {"task", "measured_with"}) {
    Json without = document;
    without.erase(key);
    EXPECT_NE(error_of([&] { parsed(without); }).text.find(key), std::string::npos);
  }
}

TEST(PrecisionFile, RefusesWhatMakesNoSenseForItsTask) {
  const auto refusal = [](const MeasuredTask& task, const char* key, const Json& value) {
    Json document = to_json(record_of(task));
    document[key] = value;
    return error_text([&] { parsed(document); });
  };
  EXPECT_EQ(refusal(kTokens, "rows", 5), "no error");
  EXPECT_THAT(refusal(kTokens, "task", "fill-mask"), HasSubstr("task 'fill-mask' is none that strake scores"));
  EXPECT_THAT(refusal(kTokens, "task", 3), HasSubstr("key 'task' has the unexpected value"));
  EXPECT_THAT(refusal(kTokens, "metric", "accuracy"), HasSubstr("'accuracy' is no metric of token-classification"));
  EXPECT_THAT(refusal(kTokens, "pooling", "mean"), HasSubstr("key 'pooling' makes no sense for token-classification"));
  EXPECT_THAT(refusal(kMeanEmbeddings, "pooling", "max"), HasSubstr("pooling 'max' is neither mean nor cls"));
  EXPECT_THAT(refusal(kMeanEmbeddings, "pooling", nullptr), HasSubstr("key 'pooling' is null"));
  EXPECT_THAT(refusal(kMeanEmbeddings, "task", "token-classification"), HasSubstr("'pooling' makes no sense"));
  EXPECT_THAT(refusal(kTokens, "task", "text-classification"), HasSubstr("key 'metric' is null"));
  EXPECT_THAT(refusal(kTokens, "task", "feature-extraction"), HasSubstr("key 'pooling' is missing"));
  Json document = to_json(record_of(kTokens));
  document.erase("metric");
  EXPECT_THAT(error_text([&] { parsed(document); }), HasSubstr("key 'metric' is missing"));
  document = to_json(record_of(kTokens));
  document["int8"].erase("agreement");
  EXPECT_THAT(error_text([&] { parsed(document); }), HasSubstr("numbers have no agreement"));
}

TEST(PrecisionFile, WritesNumbersThatAreUndefinedAsNull) {
  PrecisionRecord record = good_record();
  record.metric = "pearson";
  record.fp32_metric = record.int8.metric = std::numeric_limits<double>::quiet_NaN();
  record.bf16.agreement = record.int8.agreement = std::nullopt;
  EXPECT_TRUE(to_json(record).at("fp32").at("metric").is_null());
  const PrecisionRecord same = parsed(to_json(record));
  EXPECT_TRUE(std::isnan(same.fp32_metric));
  EXPECT_FALSE(same.holds(Precision::kInt8, same.int8)) << "a correlation that is undefined promises nothing";
}

TEST(PrecisionFile, RefusesHostileFiles) {
  const auto refusal = [](const char* pointer, const Json& value) {
    Json document = to_json(good_record());
    document[Json::json_pointer(pointer)] = value;
    return error_text([&] { parsed(document); });
  };
  EXPECT_EQ(refusal("/rows", 5), "no error");
  const std::vector<std::tuple<const char*, Json, const char*>> cases{
      {"/version", 2, "version 2 is not 1"},
      {"/rows", -1, "key 'rows' is -1"},
      {"/rows", "many", "key 'rows' has the unexpected value"},
      {"/model", 3, "key 'model' is not an object"},
      {"/model/weight_crc32c", int64_t{1} << 32, "'weight_crc32c' is 4294967296"},
      {"/measured_with", "here", "key 'measured_with' is not an object"},
      {"/measured_with", {{"max_seq_length", 64}}, "key 'tokenizer_fingerprint' is missing"},
      {"/measured_with/max_seq_length", 0, "key 'max_seq_length' is 0"},
      {"/measured_with/kernels", 3, "key 'kernels' has the unexpected value"},
      {"/metric", "rouge", "'rouge' is no metric of text-classification"},
      {"/metric", "pearson", "numbers have no agreement"},
      {"/int8", nullptr, "key 'int8' is null"},
      {"/int8/agreement", 1.5, "is 1.5, which is not from 0 to 1"},
      {"/int8/agreement", nullptr, "key 'agreement' is null"},
      {"/int8/bf16_linears", "all", "bf16_linears is not a list"},
      {"/int8/bf16_linears/0", 1, "key 'linear' is missing"},
      {"/int8/bf16_linears/0/linear", "head", "'head', which is no linear layer"},
      {"/int8/bf16_linears/0/layer", 2, "layer 2 of a model of 2"},
      {"/int8/bf16_linears/0/layer", -1, "layer -1 of a model of 2"},
      {"/int8/bf16_linears/0", {{"layer", 1}, {"linear", "attention.qkv"}}, "names layer 1 attention.qkv twice"}};
  for (const auto& [pointer, value, text] : cases) {
    EXPECT_THAT(refusal(pointer, value), AllOf(HasSubstr("configuration: file: "), HasSubstr(text))) << pointer;
  }
  EXPECT_THAT(error_text([] { parsed(Json::array()); }), HasSubstr("not an object"));
}

TEST(PrecisionFile, HoldsUpToTheLimitsAndNotBeyond) {
  const PrecisionRecord record = good_record();
  const auto holds = [&](double agreement, double metric) {
    return record.holds(Precision::kInt8, {.agreement = agreement, .metric = metric});
  };
  EXPECT_TRUE(holds(0.99, 0.893));
  EXPECT_FALSE(holds(0.9899, 0.893));
  EXPECT_TRUE(holds(1, 0.8881));
  EXPECT_FALSE(holds(1, 0.8879));
  EXPECT_FALSE(holds(1, 0.8981));
}

TEST(PrecisionFile, PromisesMoreOfBf16ThanOfInt8) {
  const PrecisionRecord record = good_record();
  const auto holds = [&](Precision precision, double agreement) {
    return record.holds(precision, {.agreement = agreement, .metric = 0.893});
  };
  EXPECT_TRUE(holds(Precision::kBf16, 0.998));
  EXPECT_FALSE(holds(Precision::kBf16, 0.9979));
  EXPECT_TRUE(holds(Precision::kInt8, 0.9979));
}

TEST(PrecisionFile, FingerprintsWeightsAndConfiguration) {
  const ModelFolder folder(models::small_config());
  folder.write("model.safetensors", "weights");
  const ModelFingerprint one = fingerprint_of(folder.path());
  EXPECT_EQ(one.weight_bytes, 7);
  folder.write("vocab.txt", "irrelevant");
  EXPECT_EQ(fingerprint_of(folder.path()), one);
  folder.write("model.safetensors", "weightz");
  const ModelFingerprint two = fingerprint_of(folder.path());
  EXPECT_NE(two.weight_crc32c, one.weight_crc32c);
  folder.write("config.json", "{}");
  EXPECT_NE(fingerprint_of(folder.path()).config_crc32c, two.config_crc32c);
}

const bool kFast = usable(Isa::kAvx512Bf16) || usable(Isa::kAmx);

class PrecisionChoice : public testing::Test {
 protected:
  PrecisionChoice() { folder_.write("model.safetensors", "weights"); }
  void write(PrecisionRecord record) {
    record.model = fingerprint_of(folder_.path());
    folder_.write(kPrecisionFile, to_json(record).dump());
  }
  PlannedScoring planned(const MeasuredTask& task = {}, const MeasuredWith& with = kWith) const {
    return {.folder = folder_.path(), .num_layers = kLayers, .task = task, .with = with};
  }
  PrecisionPlan choose(const std::string& precision, const MeasuredTask& task = {}) const {
    return choose_precision({.precision = precision}, planned(task)).plan;
  }
  Json accuracy(const std::string& precision, const MeasuredWith& with = kWith) const {
    return choose_precision({.precision = precision}, planned({}, with)).accuracy;
  }
  // A record is not believed; `why` is said.
  void expect_doubt(const std::string& why, const MeasuredWith& with = kWith) const {
    EXPECT_THAT(error_text([&] { accuracy("int8", with); }), AllOf(HasSubstr(why), HasSubstr("evaluate --calibrate")));
    EXPECT_THAT(accuracy("bf16", with).at("why").get<std::string>(), HasSubstr(why));
    const auto automatic = choose_precision({.precision = "auto"}, planned({}, with));
    EXPECT_EQ(automatic.plan.precision, kFast ? Precision::kBf16 : Precision::kFp32);
    if (kFast) {
      EXPECT_THAT(automatic.accuracy.at("why").get<std::string>(), HasSubstr(why));
    }
  }

  ModelFolder folder_{models::small_config()};
};

TEST_F(PrecisionChoice, TakesWhatTheFlagsSay) {
  EXPECT_EQ(choose("").precision, Precision::kFp32);
  EXPECT_EQ(choose("fp32").precision, Precision::kFp32);
  EXPECT_EQ(choose("bf16").precision, Precision::kBf16);
  EXPECT_EQ(choose_precision({.bf16 = true}, planned()).plan.precision, Precision::kBf16);
  EXPECT_EQ(choose("int8").precision, Precision::kInt8);
  EXPECT_TRUE(choose("int8").bf16_linears.empty());
}

TEST_F(PrecisionChoice, ReadsTheFileThatIsNamed) {
  const std::string named = (folder_.path() / "measured.json").string();
  const PrecisionFlags int8{.precision = "int8", .file = named};
  EXPECT_THAT(error_text([&] { choose_precision(int8, planned()); }),
              HasSubstr("measured.json is not there: strake evaluate --calibrate writes it"));
  write(good_record());
  std::filesystem::rename(folder_.path() / kPrecisionFile, named);
  EXPECT_EQ(choose_precision(int8, planned()).accuracy.at("measured"), true);
  EXPECT_EQ(accuracy("int8").at("measured"), false) << "nothing is beside the model";
  EXPECT_THAT(error_text([&] { choose_precision({.file = named}, planned()); }), HasSubstr("computes in fp32"));
}

TEST_F(PrecisionChoice, RefusesUnknownNamesAndContradictions) {
  EXPECT_THAT(error_text([&] { choose("int4"); }), HasSubstr("--precision int4 is none of fp32, bf16, int8, auto"));
  EXPECT_THAT(error_text([] { PrecisionFlags{.precision = "int8", .bf16 = true}.validate(); }),
              HasSubstr("--bf16 contradicts --precision int8"));
  EXPECT_EQ(error_text([] { PrecisionFlags{.precision = "bf16", .bf16 = true}.validate(); }), "no error");
}

TEST_F(PrecisionChoice, SaysWhatIsKnownOfTheAccuracy) {
  EXPECT_TRUE(accuracy("fp32").is_null()) << "it is what the others are compared with";
  for (const char* precision : {"bf16", "int8"}) EXPECT_EQ(accuracy(precision), Json({{"measured", false}}));
  PrecisionRecord record = good_record();
  record.bf16.agreement = 0.99;
  write(record);
  const Json int8 = accuracy("int8");
  EXPECT_EQ(int8.at("measured"), true);
  EXPECT_EQ(int8.at("rows"), 1000);
  EXPECT_EQ(int8.at("agreement"), 0.991);
  EXPECT_EQ(int8.at("metric_name"), "accuracy");
  EXPECT_EQ(int8.at("metric"), 0.89);
  EXPECT_EQ(int8.at("fp32_metric"), 0.893);
  EXPECT_EQ(int8.at("max_logit_difference"), 0.3);
  EXPECT_EQ(int8.at("keeps_promise"), true);
  EXPECT_EQ(accuracy("bf16").at("agreement"), 0.99);
  EXPECT_EQ(accuracy("bf16").at("keeps_promise"), false);
  EXPECT_EQ(accuracy("auto"), int8);
}

TEST_F(PrecisionChoice, TakesNeitherWhereNoneIsNearEnough) {
  PrecisionRecord record = good_record();
  record.bf16.agreement = 0.99;
  record.int8.agreement = 0.98;
  write(record);
  EXPECT_EQ(choose("auto").precision, Precision::kFp32);
  EXPECT_TRUE(accuracy("auto").is_null());
}

TEST_F(PrecisionChoice, KeepsLinearsInBf16ThatTheFileNames) {
  write(good_record());
  for (const char* precision : {"int8", "auto"}) {
    EXPECT_EQ(choose(precision).precision, Precision::kInt8);
    EXPECT_EQ(choose(precision).bf16_linears, good_record().bf16_linears);
  }
  EXPECT_EQ(describe(choose("int8"), kLayers), "int8 with 2 of 8 linear layers in bf16");
  EXPECT_TRUE(choose("bf16").bf16_linears.empty());
}

TEST_F(PrecisionChoice, DoesNotTrustAFileThatWasMeasuredForAnotherModel) {
  write(good_record());
  folder_.write("model.safetensors", "weightz");
  expect_doubt("was measured for other weights");
  EXPECT_EQ(choose("bf16").precision, Precision::kBf16);
}

TEST_F(PrecisionChoice, DoesNotTrustAFileThatWasMeasuredWithAnotherTokenizer) {
  write(good_record());
  EXPECT_EQ(choose("auto").precision, Precision::kInt8);
  MeasuredWith with = kWith;
  with.tokenizer_fingerprint = "0123abce";
  expect_doubt("was measured with another tokenizer", with);
}

TEST_F(PrecisionChoice, TellsWhatIsOtherwiseThanWhereItWasMeasured) {
  write(good_record());
  const auto notices = [&](int64_t max_seq_length, const char* kernels) -> Json {
    const MeasuredWith with{kWith.tokenizer_fingerprint, max_seq_length, kernels};
    const Json known = accuracy("int8", with);
    EXPECT_EQ(known.at("measured"), true);
    EXPECT_EQ(known.at("max_seq_length"), 64);
    EXPECT_EQ(known.at("kernels"), "avx512_bf16");
    EXPECT_EQ(accuracy("auto", with), known) << "nevertheless it is relied on";
    EXPECT_EQ(accuracy("bf16", with).contains("notices"), known.contains("notices"));
    return known.value("notices", Json::array());
  };
  EXPECT_EQ(notices(64, "avx512_bf16"), Json::array());
  const Json longer = notices(65, "avx512_bf16");
  ASSERT_EQ(longer.size(), 1);
  EXPECT_EQ(longer[0],
            "it was measured with --max_seq_length 64, and this run has 65: nothing is known of longer texts");
  const Json shorter = notices(63, "amx");
  ASSERT_EQ(shorter.size(), 2);
  EXPECT_EQ(shorter[0], "it was measured with --max_seq_length 64, and this run has 63");
  EXPECT_THAT(shorter[1].get<std::string>(), HasSubstr("with the kernels avx512_bf16, and this run has amx"));
}

TEST_F(PrecisionChoice, DoesNotTrustAFileThatWasMeasuredForAnotherTask) {
  write(good_record());
  EXPECT_TRUE(choose("int8", kMeanEmbeddings).bf16_linears.empty());
  EXPECT_NE(choose("auto", kMeanEmbeddings).precision, Precision::kInt8);
  write(record_of(kMeanEmbeddings));
  for (const char* precision : {"int8", "auto"}) {
    EXPECT_EQ(choose(precision, kMeanEmbeddings).bf16_linears, good_record().bf16_linears) << precision;
  }
  EXPECT_TRUE(choose("int8", kFirstEmbeddings).bf16_linears.empty());
  EXPECT_NE(choose("auto", kFirstEmbeddings).precision, Precision::kInt8);
  EXPECT_NE(choose("auto").precision, Precision::kInt8);
}

TEST_F(PrecisionChoice, AutoTakesNothingThatIsKnownToBeTooFar) {
  EXPECT_EQ(choose("auto").precision, kFast ? Precision::kBf16 : Precision::kFp32);
  PrecisionRecord record = good_record();
  record.int8.agreement = 0.9;
  write(record);
  EXPECT_EQ(choose("auto").precision, kFast ? Precision::kBf16 : Precision::kFp32);
  EXPECT_EQ(choose("int8").precision, Precision::kInt8) << "asked for by name";
  record.bf16.metric = 0.5;
  write(record);
  EXPECT_EQ(choose("auto").precision, Precision::kFp32);
}

TEST_F(PrecisionChoice, AutoTakesBf16OnAGpuUnlessItIsKnownToBeTooFar) {
  const auto on_gpu = [&] {
    PlannedScoring gpu = planned();
    gpu.on_gpu = true;
    return choose_precision({.precision = "auto"}, gpu).plan.precision;
  };
  EXPECT_EQ(on_gpu(), Precision::kBf16);
  PrecisionRecord record = good_record();
  write(record);
  EXPECT_EQ(choose("auto").precision, Precision::kInt8);
  EXPECT_EQ(on_gpu(), Precision::kBf16);
  record.bf16.metric = 0.5;
  write(record);
  EXPECT_EQ(on_gpu(), Precision::kFp32);
}

TEST_F(PrecisionChoice, AutoReliesOnEnoughRowsOnly) {
  PrecisionRecord record = good_record();
  record.rows = 500;
  write(record);
  EXPECT_EQ(choose("auto").precision, Precision::kInt8);
  EXPECT_EQ(accuracy("int8").at("enough_rows"), true);
  record.rows = 499;
  write(record);
  EXPECT_EQ(choose("auto").precision, kFast ? Precision::kBf16 : Precision::kFp32);
  for (const char* precision : {"bf16", "int8"}) {
    EXPECT_EQ(accuracy(precision).at("rows"), 499);
    EXPECT_EQ(accuracy(precision).at("enough_rows"), false);
    EXPECT_EQ(accuracy(precision).at("keeps_promise"), false);
  }
  EXPECT_EQ(choose("int8").bf16_linears, good_record().bf16_linears) << "asked for by name";
  record.bf16.agreement = 0.99;
  write(record);
  EXPECT_EQ(choose("auto").precision, Precision::kFp32) << "few rows can tell that it is too far";
}

TEST_F(PrecisionChoice, RefusesAFileThatCannotBeRead) {
  folder_.write(kPrecisionFile, "{\"version\": 1, \"version\": 1}");
  for (const char* precision : {"int8", "auto"}) {
    EXPECT_THAT(error_text([&] { choose(precision); }), HasSubstr(kPrecisionFile));
  }
  EXPECT_EQ(choose("fp32").precision, Precision::kFp32);
}

}  // namespace
}  // namespace strake::scoring::precision_test
