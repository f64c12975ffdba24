// The numbers of sequences do not depend on how they share batches.
#include "strake/training/evaluator.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "strake/comm/thread_comm.h"
#include "strake/tensors/compute_threads.h"
#include "strake/training/memory_plan_case.h"

namespace strake::training::evaluator_test {
namespace {

data::TokenDataset sequences_of_many_lengths() {
  data::TokenDatasetBuilder builder("test");
  for (int64_t s = 0; s < 30; ++s) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < 1 + 11 * s % 64; ++t) ids.push_back(static_cast<int32_t>((7 * s + 13 * t) % kWords));
    builder.append({.ids = ids, .row = s});
  }
  return builder.build();
}

using Nll = std::map<int64_t, std::vector<float>>;

Nll nll_of(const data::TokenDataset& dataset, const BatchLimit& batch, comm::Comm& comm) {
  const Case test{.family = "gpt2", .precision = Precision::kFp32};
  const auto model = make_model(test);
  ShardedParameters parameters(*model, comm, options_of(test));
  for (size_t i = 0; i < parameters.num_blocks(); ++i) parameters.assign(i, initial_weights(test)[i].clone());
  Nll found;
  for_each_sequence_nll({*model, parameters, comm, dataset, batch}, [&](int64_t i, std::span<const float> nll) {
    EXPECT_TRUE(found.emplace(i, std::vector(nll.begin(), nll.end())).second) << "twice: " << i;
  });
  return found;
}

TEST(SequenceNll, DoesNotDependOnBatches) {
  tensors::set_compute_threads(1);
  const data::TokenDataset dataset = sequences_of_many_lengths();
  comm::SelfComm alone;
  const Nll want = nll_of(dataset, {}, alone);
  ASSERT_EQ(std::ssize(want), dataset.size());
  for (const auto& [i, nll] : want) EXPECT_EQ(std::ssize(nll), dataset.length(i) - 1);
  const std::vector<BatchLimit> limits{{.sequences = 1},
                                       {.sequences = 7},
                                       {.tokens = 1},
                                       {.tokens = 100},
                                       {.sequences = 3, .tokens = 100},
                                       {.tokens = 256, .fill = BatchLimit::Fill::kToTokens},
                                       {.tokens = 48, .fill = BatchLimit::Fill::kToTokens}};
  for (const BatchLimit& limit : limits) EXPECT_EQ(nll_of(dataset, limit, alone), want);
}

TEST(SequenceNll, ComesFromOneRankEach) {
  const data::TokenDataset dataset = sequences_of_many_lengths();
  comm::SelfComm alone;
  tensors::set_compute_threads(1);
  const Nll want = nll_of(dataset, {}, alone);
  std::vector<Nll> of_ranks(3);
  comm::run_ranks(3, 1, [&](comm::Comm& comm) {
    of_ranks[static_cast<size_t>(comm.rank())] = nll_of(dataset, {.tokens = 300}, comm);
  });
  Nll all;
  for (Nll& part : of_ranks) all.merge(part);
  EXPECT_EQ(all, want);
  for (const Nll& part : of_ranks) EXPECT_TRUE(part.empty()) << "two ranks computed a sequence";
}

TEST(Evaluation, IsThatOfTheFirstRankWhereRanksRoundOtherwise) {
  comm::run_ranks(3, 1, [](comm::Comm& comm) {
    const double last_bits = 1e-15 * comm.rank();
    Evaluation evaluation{.loss = 0.5 + last_bits, .metrics = {{"accuracy", 0.25 - last_bits}, {"f1", 0.75}}};
    take_that_of_first(evaluation, comm);
    EXPECT_EQ(evaluation.loss, 0.5);
    EXPECT_EQ(evaluation.metrics, (monitor::NamedValues{{"accuracy", 0.25}, {"f1", 0.75}}));
  });
}

}  // namespace
}  // namespace strake::training::evaluator_test
