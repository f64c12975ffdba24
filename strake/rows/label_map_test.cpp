#include "strake/rows/label_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "strake/core/test_error.h"
#include "strake/rows/collect_labels.h"

namespace strake::rows::label_map_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LabelMapTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("strake_label_map_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A file with one column of these values, a line each.
  data::TableSource column(const std::string& name, const std::vector<std::string>& lines) const {
    std::ofstream file(folder_ / name);
    for (const std::string& line : lines) file << line << "\n";
    return {.paths = {folder_ / name}};
  }
  LabelMap of_csv(std::vector<std::string> values, std::optional<models::ProblemType> problem = std::nullopt) const {
    values.insert(values.begin(), "label");
    return collect_labels(column("labels.csv", values), "label", problem);
  }

  std::filesystem::path folder_;
};

TEST_F(LabelMapTest, CsvColumnsOfDecimalNumbersMeanRegression) {
  for (const std::vector<std::string>& values :
       {std::vector<std::string>{"0.5", "2"}, {"1", "2", "3.0"}, {"-1e3", "4"}, {"\"0.5\"", "\"1.5\""}, {"0.5"}}) {
    EXPECT_EQ(of_csv(values).problem(), models::ProblemType::kRegression) << values.front();
  }
  const auto tsv = column("labels.tsv", {"label\tx", "0.5\ta", "1\tb"});
  EXPECT_EQ(collect_labels(tsv, "label", std::nullopt).problem(), models::ProblemType::kRegression);
}

TEST_F(LabelMapTest, OtherCsvColumnsMeanClasses) {
  EXPECT_THAT(of_csv({"10", "9", "-1", "9"}).names(), ElementsAre("-1", "9", "10"));
  EXPECT_THAT(of_csv({" 10", "9", "+9", "10 ", "-1"}).names(), ElementsAre("-1", "9", "10")) << "as pandas reads them";
  const auto spellings = column("spellings.csv", {"label", " 10", "9", "+9"});
  const LabelMap map = collect_labels(spellings, "label", std::nullopt);
  EXPECT_THAT(map.map(*data::TableReader(spellings).next(), "label"), ElementsAre(1, 0, 0));
  EXPECT_THAT(of_csv({" 1", "one"}).names(), ElementsAre(" 1", "one")) << "of text blanks are a part";
  EXPECT_THAT(of_csv({"0.5", "1.5", "unknown"}).names(), ElementsAre("0.5", "1.5", "unknown"));
  EXPECT_THAT(of_csv({"v1.0", "v2.0"}).names(), ElementsAre("v1.0", "v2.0"));
  EXPECT_THAT(of_csv({"inf", "nan"}).names(), ElementsAre("inf", "nan"));
  EXPECT_THAT(of_csv({"3 stars", "3.5 stars"}).names(), ElementsAre("3 stars", "3.5 stars"));
  EXPECT_EQ(of_csv({"123456789012345678901", "2"}).problem(), models::ProblemType::kSingleLabelClassification);
}

TEST_F(LabelMapTest, AProblemTypeThatIsGivenCounts) {
  EXPECT_THAT(of_csv({"0.5", "1.0", "0.5"}, models::ProblemType::kSingleLabelClassification).names(),
              ElementsAre("0.5", "1.0"));
  EXPECT_EQ(of_csv({"1", "2"}, models::ProblemType::kRegression).problem(), models::ProblemType::kRegression);
}

TEST_F(LabelMapTest, FormatsWithTypesSayWhatTheirColumnsAre) {
  const auto text = column("text.jsonl", {R"({"label": "0.5"})", R"({"label": "1.5"})"});
  EXPECT_THAT(collect_labels(text, "label", std::nullopt).names(), ElementsAre("0.5", "1.5"));
  const auto numbers = column("numbers.jsonl", {R"({"label": 0.5})", R"({"label": 1.5})"});
  EXPECT_EQ(collect_labels(numbers, "label", std::nullopt).problem(), models::ProblemType::kRegression);
}

TEST_F(LabelMapTest, ListsMeanSeveralLabels) {
  const auto source =
      column("lists.jsonl", {R"({"label": ["b", "a", "b"]})", R"({"label": []})", R"({"label": [10]})"});
  const LabelMap map = collect_labels(source, "label", std::nullopt);
  EXPECT_EQ(map.problem(), models::ProblemType::kMultiLabelClassification);
  EXPECT_THAT(map.names(), ElementsAre("10", "a", "b"));
  const data::Table table = *data::TableReader(source).next();
  using Ids = std::vector<int32_t>;
  EXPECT_THAT(map.map(table, "label"), ElementsAre(Ids{1, 2}, Ids{}, Ids{0}));
  EXPECT_THAT(map.map(table, "label", 2), ElementsAre(Ids{0}));
}

TEST_F(LabelMapTest, ListsThatSayOfEachLabelWhetherAreNoNumbersOfLabels) {
  const LabelMap map =
      LabelMap::classes({"a", "b", "c"}, models::ProblemType::kMultiLabelClassification, LabelMap::Numbered::kYes);
  const data::Table named = *data::TableReader(column("ids.jsonl", {R"({"label": [2, 0]})"})).next();
  EXPECT_THAT(map.map(named, "label"), ElementsAre(std::vector<int32_t>{0, 2}));
  const auto decisions = column("decisions.jsonl", {R"({"label": [2, 0]})", R"({"label": [0, 1, 0]})"});
  const data::Table table = *data::TableReader(decisions).next();
  const std::string text = error_of([&] { map.map(table, "label"); }).text;
  EXPECT_THAT(text, HasSubstr("decisions.jsonl"));
  EXPECT_THAT(text, HasSubstr("the labels [0, 1, 0] have a number twice"));
}

TEST_F(LabelMapTest, ManyDifferentNumbersAreNoClasses) {
  std::vector<std::string> values;
  for (int i = 0; i <= 100'000; ++i) values.push_back(std::to_string(i));
  EXPECT_THAT(error_of([&] { of_csv(values); }).text, HasSubstr("more than 100000 different labels"));
  values.emplace_back("0.5");
  EXPECT_EQ(of_csv(values).problem(), models::ProblemType::kRegression) << "whatever comes last";
}

}  // namespace
}  // namespace strake::rows::label_map_test
