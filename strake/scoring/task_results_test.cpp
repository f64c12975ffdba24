#include "strake/scoring/task_results.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "strake/core/error.h"
#include "strake/data/table_reader.h"
#include "strake/data/test_folder.h"

namespace strake::scoring::task_results_test {
namespace {

using Results = std::unique_ptr<TaskResults>;

at::Tensor numbers(const std::vector<float>& values, int64_t width) { return at::tensor(values).view({-1, width}); }

class TaskResultsTest : public data::FolderTest {
 protected:
  // `places`: of every token; rows have one sequence each.
  rows::EncodedRows rows(const std::string& json_lines, std::vector<int64_t> offsets,
                         std::vector<rows::TokenPlace> places = {}) {
    data::TableReader reader({.paths = {write("rows.jsonl", json_lines)}});
    return {.table = *reader.next(),
            .ids = {},
            .offsets = std::move(offsets),
            .second_begin = {},
            .labels = {},
            .places = std::move(places),
            .cut_rows = {},
            .first_sequences = {}};
  }

  Results results(ScoringTask task, const std::string& answers_column = "") {
    task_.task = task;
    return make_results(
        {.task = task_, .text = text_, .encoder = encoder_, .answers_column = answers_column, .are_compared = true});
  }

  // Of vectors, one a row.
  double cosine(const at::Tensor& exact, const at::Tensor& other) {
    const Results a = results(ScoringTask::kFeatureExtraction);
    const Results b = results(ScoringTask::kFeatureExtraction);
    const rows::EncodedRows none = rows("{\"text\": \"\"}\n", {0, 0});
    a->add(none, exact);
    b->add(none, other);
    return b->agreement(*a).value();
  }

  TaskHead task_;
  rows::TextOptions text_{.text_pair_column = "context"};
  models::EncoderConfig encoder_;
};

constexpr rows::TokenPlace kOutside{.is_outside = true};
constexpr double kTolerance = 1e-6;  // directions are fp32

TEST_F(TaskResultsTest, OnlyTokensOfTheTextCount) {
  const rows::EncodedRows data = rows("{\"text\": \"a b\"}\n", {0, 4}, {kOutside, {0, 1}, {2, 3}, kOutside});
  const Results exact = results(ScoringTask::kTokenClassification);
  const Results other = results(ScoringTask::kTokenClassification);
  exact->add(data, numbers({1, 0, 1, 0, 1, 0, 1, 0}, 2));
  other->add(data, numbers({0, 1, 1, 0, 0, 1, 0, 1}, 2));
  EXPECT_EQ(other->agreement(*exact), 0.5);
  EXPECT_TRUE(exact->metrics().empty());
  EXPECT_EQ(exact->main_metric(), "");
}

TEST_F(TaskResultsTest, TextsWithoutTokensHaveNoAgreement) {
  const rows::EncodedRows data = rows("{\"text\": \"\"}\n", {0, 2}, {kOutside, kOutside});
  const Results exact = results(ScoringTask::kTokenClassification);
  exact->add(data, numbers({1, 0, 1, 0}, 2));
  EXPECT_THROW(exact->agreement(*exact), Error);
}

// [CLS], two words of the context, [SEP]; the logits name the answer's word.
TEST_F(TaskResultsTest, AnswersAgreeByTheirTextAndCountByTheTrueOnes) {
  const std::string row = "{\"context\": \"red blue\", \"answers\": {\"text\": [\"The red.\", \"green\"]}}\n";
  const std::vector<rows::TokenPlace> places{kOutside, {0, 3}, {4, 8}, kOutside};
  std::vector<rows::TokenPlace> all = places;
  all.insert(all.end(), places.begin(), places.end());
  const rows::EncodedRows data = rows(row + row, {0, 4, 8}, all);
  const std::vector<float> red{0, 0, 9, 9, 0, 0, 0, 0};
  const std::vector<float> blue{0, 0, 0, 0, 9, 9, 0, 0};
  std::vector<float> both = red;
  both.insert(both.end(), blue.begin(), blue.end());
  std::vector<float> twice = red;
  twice.insert(twice.end(), red.begin(), red.end());
  const Results exact = results(ScoringTask::kQuestionAnswering, "answers");
  const Results other = results(ScoringTask::kQuestionAnswering, "answers");
  exact->add(data, numbers(twice, 2));
  other->add(data, numbers(both, 2));
  EXPECT_EQ(other->agreement(*exact), 0.5);
  EXPECT_EQ(exact->metrics(), (monitor::NamedValues{{"exact_match", 100}, {"f1", 100}}));
  EXPECT_EQ(other->metrics(), (monitor::NamedValues{{"exact_match", 50}, {"f1", 50}}));
  EXPECT_EQ(other->main_metric(), "f1");
  EXPECT_EQ(results(ScoringTask::kQuestionAnswering)->main_metric(), "");
}

TEST_F(TaskResultsTest, WhatAllVectorsShareDoesNotCount) {
  // Both rows point along (1, 0, 0) but for a little, which is the other way round.
  const at::Tensor exact = numbers({10, 0.1F, 0, 10, -0.1F, 0}, 3);
  EXPECT_NEAR(cosine(exact, exact), 1, kTolerance);
  EXPECT_NEAR(cosine(exact, numbers({10, -0.1F, 0, 10, 0.1F, 0}, 3)), 0, kTolerance) << "their plain cosine is 0.9998";
  EXPECT_NEAR(cosine(exact, numbers({10, 0, 0.1F, 10, 0, -0.1F}, 3)), 0, 1e-3);
}

TEST_F(TaskResultsTest, LengthsOfVectorsDoNotCount) {
  const at::Tensor exact = numbers({3, 4, 0, 1}, 2);
  EXPECT_NEAR(cosine(exact, numbers({6, 8, 0, 0.5F}, 2)), 1, kTolerance);
}

TEST_F(TaskResultsTest, ASingleVectorShowsNothing) { EXPECT_EQ(cosine(numbers({3, 4}, 2), numbers({3, 4}, 2)), 0); }

}  // namespace
}  // namespace strake::scoring::task_results_test
