#include "strake/monitor/entity_metrics.h"

#include <gtest/gtest.h>

#include "strake/core/test_error.h"

namespace strake::monitor::entity_metrics_test {
namespace {

const std::vector<std::string> kNames{"O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-PER", "S-LOC", "NAME"};
enum Names : int32_t { kO, kBPer, kIPer, kBLoc, kILoc, kEPer, kSLoc, kName };
using Labels = std::vector<int32_t>;

EntityMetrics compare(const std::vector<std::pair<Labels, Labels>>& texts) {
  EntityCounter counter(kNames);
  for (const auto& [predicted, actual] : texts) counter.add({predicted, actual});
  return counter.metrics();
}

// How many entities seqeval sees in labels: all of them are found in themselves, and none in nothing.
double recall_beside(const Labels& predicted, const Labels& actual) { return compare({{predicted, actual}}).recall; }

TEST(EntityMetrics, AreOfWholeEntities) {
  // One is right, of one the end is wrong, one is missed, one was made up.
  const EntityMetrics metrics = compare(
      {{{kBPer, kIPer, kO, kBLoc, kO, kO, kBPer}, {kBPer, kIPer, kO, kBLoc, kILoc, kO, kO}}, {{kO, kO}, {kBLoc, kO}}});
  EXPECT_DOUBLE_EQ(metrics.precision, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.recall, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.f1, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.accuracy, 6.0 / 9);
}

TEST(EntityMetrics, TakeInsideLabelsForBeginningsAsSeqevalDoes) {
  EXPECT_EQ(recall_beside({kO, kIPer, kIPer}, {kO, kBPer, kIPer}), 1) << "I- behind O begins an entity";
  EXPECT_EQ(recall_beside({kBPer, kILoc}, {kBPer, kBLoc}), 1) << "another type begins one";
  EXPECT_EQ(recall_beside({kBPer, kBPer}, {kBPer, kIPer}), 0) << "B- behind B- begins one";
  EXPECT_EQ(recall_beside({kBPer, kIPer, kEPer, kIPer}, {kBPer, kIPer, kIPer, kBPer}), 1) << "E- ends one";
  EXPECT_EQ(recall_beside({kSLoc, kSLoc}, {kBLoc, kBLoc}), 1) << "S- is one";
  EXPECT_EQ(recall_beside({kName, kName}, {kName, kName}), 1) << "a label without a prefix is one, too";
}

TEST(EntityMetrics, EndWithTheText) {
  const EntityMetrics metrics = compare({{{kBPer}, {kBPer}}, {{kIPer}, {kIPer}}});
  EXPECT_EQ(metrics.f1, 1);
  EXPECT_EQ(compare({{{kBPer, kIPer}, {kBPer, kIPer}}}).precision, 1);
}

TEST(EntityMetrics, TakeALabelOfOneCharacterAtATextsBeginningAsSeqevalDoes) {
  // seqeval 1.2.2 sees ("AME", 0, 0), ("_", 1, 3), ("AME", 4, 4) in what is predicted, the first and last of them in
  // the labels.
  const std::vector<std::string> names{"O", "NAME", "X"};
  EntityCounter counter(names);
  counter.add({Labels{1, 2}, Labels{1, 2}});
  counter.add({Labels{2, 1}, Labels{0, 1}});
  const EntityMetrics metrics = counter.metrics();
  EXPECT_DOUBLE_EQ(metrics.precision, 2.0 / 3);
  EXPECT_EQ(metrics.recall, 1);
}

TEST(EntityMetrics, AreZeroWithoutEntities) {
  const EntityMetrics metrics = compare({{{kO, kO}, {kO, kO}}});
  EXPECT_EQ(metrics.named_values(), (NamedValues{{"precision", 0.0}, {"recall", 0.0}, {"f1", 0.0}, {"accuracy", 1.0}}));
}

TEST(EntityMetrics, RefuseWhatIsNoLabel) {
  EXPECT_EQ(error_of([] { compare({{{kO}, {8}}}); }).text, "label 8 is none of 8");
  EXPECT_EQ(error_of([] { compare({{{-1}, {kO}}}); }).text, "label -1 is none of 8");
  EXPECT_EQ(error_of([] { compare({{{kO, kO}, {kO}}}); }).text, "2 labels were predicted of 1");
  EXPECT_EQ(error_of([] { compare({}); }).text, "no word has a label");
}

}  // namespace
}  // namespace strake::monitor::entity_metrics_test
