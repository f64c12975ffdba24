#include "strake/rows/answer_spans.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strake::rows::answer_spans_test {
namespace {

using Answers = std::vector<data::LabelledSpan>;

constexpr TokenPlace kOutside{.is_outside = true};

// A window of [CLS], one token of the question, [SEP], `places`, [SEP]. Every logit is -20 but those that are set.
class Window {
 public:
  explicit Window(const std::vector<TokenPlace>& places) : places_{kOutside, kOutside, kOutside} {
    places_.insert(places_.end(), places.begin(), places.end());
    places_.push_back(kOutside);
    logits_.assign(2 * places_.size(), -20.0F);
  }

  Window& begins(int token, float logit) { return set(2 * (kBeforeContext + token), logit); }
  Window& ends(int token, float logit) { return set(2 * (kBeforeContext + token) + 1, logit); }
  Window& is_empty(float logit) { return set(0, logit).set(1, logit); }
  Window& in_question(float logit) { return set(2, logit).set(3, logit).set(4, logit).set(5, logit); }

  void add_to(AnswerFinder& finder) const { finder.add_window(logits_, places_); }

 private:
  static constexpr int kBeforeContext = 3;

  Window& set(int at, float logit) {
    logits_[static_cast<size_t>(at)] = logit;
    return *this;
  }

  std::vector<TokenPlace> places_;
  std::vector<float> logits_;
};

// One token for every letter of "abcdef...".
std::vector<TokenPlace> letters(int32_t begin, int32_t end) {
  std::vector<TokenPlace> places;
  for (int32_t i = begin; i < end; ++i) places.push_back({i, i + 1});
  return places;
}

constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz";

Answers find(const AnswerRules& rules, const char* context, const std::vector<Window>& windows) {
  AnswerFinder finder(rules, context);
  for (const Window& window : windows) window.add_to(finder);
  return finder.finish();
}

// Other spans than the named one have e^-20 of its weight.
constexpr float kTolerance = 1e-6F;

TEST(AnswerSpans, ScoreIsTheProductOfBothProbabilities) {
  Window window(letters(0, 6));
  window.begins(1, 0).begins(4, std::log(3.0F)).ends(4, 0).ends(5, 0);
  const Answers found = find({.top_k = 3}, kLetters, {window});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].label, "e");
  EXPECT_NEAR(found[0].score, 0.375F, kTolerance);
  EXPECT_EQ(found[1].label, "ef");
  EXPECT_EQ(found[2].label, "bcde");
  EXPECT_NEAR(found[2].score, 0.125F, kTolerance);
  EXPECT_EQ(found[2].begin, 1);
  EXPECT_EQ(found[2].end, 5);
}

TEST(AnswerSpans, OfEqualOnesTheFirstIsTheAnswer) {
  Window window(letters(0, 6));
  for (int token = 0; token < 6; ++token) window.begins(token, 0).ends(token, 0);
  const Answers found = find({.top_k = 3}, kLetters, {window});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].label, "a");
  EXPECT_EQ(found[1].label, "ab");
  EXPECT_EQ(found[2].label, "abc");
}

TEST(AnswerSpans, AnswersHaveAtMostMaxAnswerLenTokens) {
  Window window(letters(0, 10));
  window.begins(2, 10).ends(7, 10).ends(4, 5);
  EXPECT_EQ(find({.max_answer_len = 6}, kLetters, {window})[0].label, "cdefgh");
  EXPECT_EQ(find({.max_answer_len = 5}, kLetters, {window})[0].label, "cde");
}

TEST(AnswerSpans, AnEndBeforeTheBeginIsNoAnswer) {
  Window window(letters(0, 6));
  window.begins(4, 10).ends(1, 10).ends(5, 3);
  EXPECT_EQ(find({}, kLetters, {window})[0].label, "ef");
}

TEST(AnswerSpans, TheQuestionHasNoPartInTheSoftmax) {
  Window window(letters(0, 3));
  window.in_question(50).begins(1, 0).ends(1, 0);
  const Answers found = find({}, kLetters, {window});
  EXPECT_EQ(found[0].label, "b");
  EXPECT_NEAR(found[0].score, 1, kTolerance);
}

TEST(AnswerSpans, TheFirstTokenHasAPartInTheSoftmaxAlsoWhereAnAnswerIsRequired) {
  Window window(letters(0, 3));
  window.is_empty(0).begins(1, 0).ends(1, 0);
  const Answers found = find({}, kLetters, {window});
  EXPECT_EQ(found[0].label, "b");
  EXPECT_NEAR(found[0].score, 0.25F, kTolerance);
}

TEST(AnswerSpans, TheEmptyAnswerHasTheLeastScoreOfAllWindows) {
  Window without(letters(0, 3)), with(letters(3, 6));
  without.is_empty(10);
  with.is_empty(0).begins(0, 0).ends(0, std::log(3.0F));
  const AnswerRules rules{.top_k = 2, .impossible = AnswerRules::Impossible::kAllowed};
  const Answers found = find(rules, kLetters, {without, with});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].label, "d");
  EXPECT_NEAR(found[0].score, 0.375F, kTolerance);
  EXPECT_EQ(found[1], (data::LabelledSpan{.label = "", .score = found[1].score, .begin = 0, .end = 0}));
  EXPECT_NEAR(found[1].score, 0.125F, kTolerance);
  EXPECT_EQ(find({.impossible = AnswerRules::Impossible::kAllowed}, kLetters, {without})[0].label, "");
  EXPECT_NE(find({}, kLetters, {without})[0].label, "");
}

TEST(AnswerSpans, AnAnswerAcrossTheBorderOfWindowsIsFoundInTheOneThatHasAllOfIt) {
  Window first(letters(0, 6)), second(letters(3, 9));  // share def; the answer is fg
  first.is_empty(0).begins(5, 0).ends(0, 0);
  second.begins(2, 5).ends(3, 5);
  const Answers found = find({}, kLetters, {first, second});
  EXPECT_EQ(found[0].label, "fg");
  EXPECT_EQ(found[0].begin, 5);
  EXPECT_EQ(found[0].end, 7);
}

TEST(AnswerSpans, ScoresOfOneAnswerInSeveralWindowsAreAdded) {
  Window first(letters(0, 6)), second(letters(3, 9));
  first.begins(4, 0).ends(4, 0);
  second.begins(1, 0).ends(1, 0);
  const Answers found = find({}, kLetters, {first, second});
  EXPECT_EQ(found[0].label, "e");
  EXPECT_NEAR(found[0].score, 2, kTolerance);
}

TEST(AnswerSpans, TextsThatDifferInCaseAloneAreOneAnswerAtTheBetterPlace) {
  Window window({{0, 3}, {4, 7}, {8, 11}});
  window.begins(0, 0).ends(0, 0).begins(2, 1).ends(2, 1);
  const Answers found = find({.max_answer_len = 1}, "\u00c9ta the \u00e9TA", {window});
  EXPECT_EQ(found[0].label, "\u00e9TA");
  EXPECT_EQ(found[0].begin, 8);
  const float last = 1 / (1 + std::exp(-1.0F));
  EXPECT_NEAR(found[0].score, last * last + (1 - last) * (1 - last), kTolerance);
}

TEST(AnswerSpans, TokensOfOneWordGiveOneAnswer) {
  Window window({{0, 4}, {0, 4}, {5, 8}});  // of a word of two tokens, and another one
  window.begins(0, 0).begins(1, 0).ends(0, 0).ends(1, 0);
  const Answers found = find({}, "read the", {window});
  EXPECT_EQ(found[0].label, "read");
  EXPECT_NEAR(found[0].score, 0.75F, kTolerance);  // without the end before the begin
}

TEST(AnswerSpans, PlacesCountCodePoints) {
  Window window({{0, 2}, {2, 4}});
  window.begins(1, 0).ends(1, 0);
  EXPECT_EQ(find({}, "\U0001f600\u00e9\u4f60b", {window})[0],
            (data::LabelledSpan{.label = "\u4f60b", .score = 1, .begin = 2, .end = 4}));
}

TEST(AnswerSpans, FewerThanTopKAreThereWhereTheContextIsShort) {
  Window window(letters(0, 1));
  EXPECT_EQ(find({.top_k = 4}, "a", {window}).size(), 1U);
}

TEST(AnswerSpans, NumbersForTheJournalGiveTheAnswersBack) {
  const Answers answers{{.label = "\u00e9b", .score = 0.5F, .begin = 1, .end = 3}, {.label = "", .score = 0.25F}};
  std::vector<float> numbers(3 * kNumbersPerAnswer);
  put_answers(answers, numbers);
  EXPECT_EQ(get_answers(numbers, "a\u00e9bc"), answers);
}

}  // namespace
}  // namespace strake::rows::answer_spans_test
