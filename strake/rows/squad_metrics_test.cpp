#include "strake/rows/squad_metrics.h"

#include <gtest/gtest.h>

#include <vector>

namespace strake::rows::squad_metrics_test {
namespace {

using Truths = std::vector<std::string>;

AnswerScore of_one(std::string_view predicted, const Truths& truths) {
  return score_answer(predicted, truths, SquadVersion::kOne);
}
AnswerScore of_two(std::string_view predicted, const Truths& truths) {
  return score_answer(predicted, truths, SquadVersion::kTwo);
}

// What normalize_answer() of evaluate-v1.1.py and evaluate-v2.0.py gives, which are the same.
TEST(SquadMetrics, NormalizesAsTheEvaluationScripts) {
  EXPECT_EQ(normalized_answer("The  Big, bad\tWolf!\n"), "big bad wolf");
  EXPECT_EQ(normalized_answer("a an the A An THE"), "");
  EXPECT_EQ(normalized_answer("theatre than anaconda"), "theatre than anaconda");
  EXPECT_EQ(normalized_answer("the-cat"), "thecat") << "without the hyphen there is no article any more";
  EXPECT_EQ(normalized_answer("U.S.A."), "usa");
  EXPECT_EQ(normalized_answer("the_end"), "theend");
  EXPECT_EQ(normalized_answer("$5 (five)"), "5 five");
  EXPECT_EQ(normalized_answer("a's"), "as");
  EXPECT_EQ(normalized_answer("\u00C9COLE de l'A"), "\u00E9cole de la");
  EXPECT_EQ(normalized_answer("the\u2013end"), "\u2013end") << "a dash beyond ASCII stays, and is no part of a word";
  EXPECT_EQ(normalized_answer("th\u00E9 the\u00E9 the2"), "th\u00E9 the\u00E9 the2");
  EXPECT_EQ(normalized_answer("the\u0301"), "\u0301") << "an accent by itself is no part of a word either";
  EXPECT_EQ(normalized_answer("one\u00A0two\u3000three\u2028four\x1F"
                              "five\x0B"
                              "six"),
            "one two three four five six");
  EXPECT_EQ(normalized_answer("\u0130stanbul"), "i\u0307stanbul");
  EXPECT_EQ(normalized_answer(""), "");
}

TEST(SquadMetrics, CountsSharedWordsAsOftenAsBothHaveThem) {
  EXPECT_DOUBLE_EQ(of_one("cat cat dog", {"cat dog dog"}).f1, 2.0 / 3);  // 2 of 3 and 2 of 3
  EXPECT_DOUBLE_EQ(of_one("the old cat sat", {"cat"}).f1, 0.5);          // 1 of 3 and 1 of 1
  EXPECT_DOUBLE_EQ(of_one("cat", {"dog"}).f1, 0);
  EXPECT_DOUBLE_EQ(of_one("dog cat", {"cat dog"}).f1, 1);
  EXPECT_DOUBLE_EQ(of_one("dog cat", {"cat dog"}).exact_match, 0);
  EXPECT_DOUBLE_EQ(of_one("The Cat.", {"cat"}).exact_match, 1);
}

TEST(SquadMetrics, TakesTheBestOfAllTrueAnswersForEachNumber) {
  const AnswerScore score = of_one("big cat", {"dog", "a big old cat", "small big cat"});
  EXPECT_DOUBLE_EQ(score.f1, 0.8);
  EXPECT_DOUBLE_EQ(score.exact_match, 0);
  EXPECT_DOUBLE_EQ(of_one("big cat", {"dog", "the big cat"}).exact_match, 1);
}

TEST(SquadMetrics, AQuestionWithoutAnAnswerHasTheEmptyOne) {
  for (const auto& score : {of_one("", {}), of_two("", {}), of_two("the", {}), of_two("", {"the", ""})}) {
    EXPECT_DOUBLE_EQ(score.exact_match, 1);
    EXPECT_DOUBLE_EQ(score.f1, 1);
  }
  for (const auto& score : {of_one("cat", {}), of_two("cat", {}), of_two("cat", {"the"}), of_two("", {"cat"})}) {
    EXPECT_DOUBLE_EQ(score.exact_match, 0);
    EXPECT_DOUBLE_EQ(score.f1, 0);
  }
}

TEST(SquadMetrics, VersionsDifferWhereATrueAnswerHasNoWords) {
  EXPECT_DOUBLE_EQ(of_one("a", {"the"}).exact_match, 1);
  EXPECT_DOUBLE_EQ(of_one("a", {"the"}).f1, 0) << "no word is shared";
  EXPECT_DOUBLE_EQ(of_two("a", {"the"}).f1, 1);
  EXPECT_DOUBLE_EQ(of_one("", {"the", "cat"}).exact_match, 1);
  EXPECT_DOUBLE_EQ(of_two("", {"the", "cat"}).exact_match, 0) << "the other one is the only true answer";
}

}  // namespace
}  // namespace strake::rows::squad_metrics_test
