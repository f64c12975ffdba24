#include "strake/monitor/evaluation_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "strake/core/json.h"
#include "strake/core/test_error.h"

namespace strake::monitor::evaluation_metrics_test {
namespace {

// Made by tools/make_metrics_fixture.py from scikit-learn and SciPy.
Json fixture() {
  return read_json(std::filesystem::path(STRAKE_SOURCE_DIR) / "strake/monitor/testdata/evaluation_metrics.json",
                   kMaxConfigBytes);
}

// Sums of up to 100 terms in another order; null stands for NaN.
constexpr double kTolerance = 1e-12;

void expect_named_values(const NamedValues& values, const Json& expected) {
  SCOPED_TRACE(expected.dump());
  for (const auto& [name, value] : values) {
    if (expected.at(name).is_null()) {
      EXPECT_TRUE(std::isnan(value)) << name << " is " << value;
    } else {
      const double wanted = expected.at(name);
      EXPECT_NEAR(value, wanted, kTolerance * std::max(1.0, std::abs(wanted))) << name;
    }
  }
}

std::string data_error_of(const std::function<void()>& action) { return error_of(action).text_of(ErrorKind::kData); }

using Ids = std::vector<int64_t>;
using Values = std::vector<double>;

TEST(MultiLabelMetrics, EqualScikitLearn) {
  const Json cases = fixture().at("several_labels");
  ASSERT_EQ(cases.size(), 5U);
  for (const Json& expected : cases) {
    const NamedValues values =
        multi_label_metrics(expected.at("predicted").get<std::vector<char>>(),
                            expected.at("actual").get<std::vector<char>>(), expected.at("num_labels"))
            .named_values();
    ASSERT_EQ(values.size(), 4U);
    expect_named_values(values, expected);
  }
  EXPECT_THAT(data_error_of([] { multi_label_metrics({}, {}, 2); }), testing::HasSubstr("no rows"));
}

TEST(ClassificationMetrics, EqualScikitLearn) {
  const Json cases = fixture().at("classification");
  ASSERT_EQ(cases.size(), 8U);
  for (const Json& expected : cases) {
    const NamedValues values = classification_metrics(expected.at("predicted").get<Ids>(),
                                                      expected.at("actual").get<Ids>(), expected.at("num_classes"))
                                   .named_values();
    ASSERT_EQ(values.size(), 5U);
    expect_named_values(values, expected);
  }
}

TEST(ClassificationMetrics, CountsPerClassAreKept) {
  const ClassificationMetrics metrics = classification_metrics(Ids{0, 1, 1, 2}, Ids{0, 1, 2, 2}, 4);
  ASSERT_EQ(metrics.classes.size(), 4U);
  EXPECT_EQ(metrics.classes[1].correct, 1);
  EXPECT_EQ(metrics.classes[1].predicted, 2);
  EXPECT_EQ(metrics.classes[1].actual, 1);
  EXPECT_EQ(metrics.classes[2].predicted, 1);
  EXPECT_EQ(metrics.classes[2].actual, 2);
  EXPECT_EQ(metrics.classes[3].actual, 0);
}

TEST(ClassificationMetrics, WrongInputIsRefusedWithItsRow) {
  EXPECT_THAT(data_error_of([] { classification_metrics(Ids{0, 2}, Ids{0, 1}, 2); }),
              testing::HasSubstr("row 1: prediction 2"));
  EXPECT_THAT(data_error_of([] { classification_metrics(Ids{0, 1}, Ids{-100, 1}, 2); }),
              testing::HasSubstr("row 0: label -100"));
  EXPECT_THAT(data_error_of([] { classification_metrics(Ids{0}, Ids{0, 1}, 2); }),
              testing::HasSubstr("1 predictions for 2 labels"));
  EXPECT_THAT(data_error_of([] { classification_metrics(Ids{}, Ids{}, 2); }), testing::HasSubstr("no rows"));
}

TEST(RegressionMetrics, EqualScikitLearnAndScipy) {
  const Json cases = fixture().at("regression");
  ASSERT_EQ(cases.size(), 6U);
  for (const Json& expected : cases) {
    const NamedValues values =
        regression_metrics(expected.at("predicted").get<Values>(), expected.at("actual").get<Values>()).named_values();
    ASSERT_EQ(values.size(), 4U);
    expect_named_values(values, expected);
  }
}

TEST(RegressionMetrics, ValuesThatAreNotFiniteMakeCorrelationsUndefined) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const RegressionMetrics metrics = regression_metrics(Values{1, bad, 3, 4}, Values{1, 2, 3, 4});
    EXPECT_TRUE(std::isnan(metrics.pearson));
    EXPECT_TRUE(std::isnan(metrics.spearmanr));
    EXPECT_FALSE(std::isfinite(metrics.mse));
  }
}

TEST(RegressionMetrics, WrongInputIsRefused) {
  EXPECT_THAT(data_error_of([] { regression_metrics(Values{1}, Values{1, 2}); }), testing::HasSubstr("2 labels"));
  EXPECT_THAT(data_error_of([] { regression_metrics(Values{}, Values{}); }), testing::HasSubstr("no rows"));
}

}  // namespace
}  // namespace strake::monitor::evaluation_metrics_test
