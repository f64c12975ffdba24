#include "strake/comm/observed_comm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "strake/comm/thread_comm.h"

namespace strake::comm::observed_comm_test {
namespace {

using Seen = std::tuple<std::string, int64_t, int>;  // name, bytes, ranks

TEST(ObservedComm, TellsOfEveryOperationAndChangesNone) {
  run_ranks(2, 1, [](Comm& comm) {
    std::vector<Seen> seen;
    const auto observed = observe(comm, [&](const CommOperation& operation) {
      EXPECT_GE(operation.seconds, 0);
      seen.emplace_back(operation.name, operation.bytes, operation.num_ranks);
    });
    EXPECT_EQ(observed->rank(), comm.rank());
    EXPECT_TRUE(observed->is_one_process() && observed->shares_memory());
    constexpr int64_t kLength = 40000;
    const auto rank = static_cast<float>(comm.rank());
    const tensors::ShardLayout layout(kLength, 2);
    at::Tensor values = at::full({kLength}, rank + 1);
    observed->all_reduce(values);
    EXPECT_TRUE(values.equal(at::full({kLength}, 3.0F)));
    at::Tensor shard = at::full({layout.size(comm.rank())}, 0.0F);
    // Rank 1 has nothing to add: what it takes part in is as large all the same.
    const at::Tensor addend = comm.rank() == 0 ? values : at::full({0}, 0.0F);
    observed->reduce_scatter(addend, 1, layout, shard, Fold::kOverwrite);
    EXPECT_TRUE(shard.equal(at::full({layout.size(comm.rank())}, 3.0F)));
    values.narrow(0, layout.begin(comm.rank()), layout.size(comm.rank())).fill_(rank + 5);
    observed->all_gather(values, layout);
    EXPECT_EQ(values[0].item<float>(), 5);
    EXPECT_EQ(values[kLength - 1].item<float>(), 6);
    at::Tensor few = at::full({2}, rank + 1);
    observed->broadcast(few, 1);
    EXPECT_EQ(few[0].item<float>(), 2);
    comm.rank() == 0 ? observed->send(few, 1) : observed->recv(few, 0);
    observed->barrier();
    observed->split(comm.rank())->barrier();
    const char* const moved = comm.rank() == 0 ? "send" : "recv";
    EXPECT_THAT(seen, testing::ElementsAre(Seen{"all_reduce", 4 * kLength, 2}, Seen{"reduce_scatter", 4 * kLength, 2},
                                           Seen{"all_gather", 4 * kLength, 2}, Seen{"broadcast", 8, 2},
                                           Seen{moved, 8, 2}, Seen{"barrier", 0, 2}, Seen{"barrier", 0, 1}));
  });
}

TEST(ObservedComm, GivesUpAsTheOneBelowIt) {
  const auto fail_on_one = [](Comm& comm) {
    const auto observed = observe(comm, [](const CommOperation&) {});
    if (comm.rank() == 1) throw Error(ErrorKind::kNumeric, "no more");
    observed->barrier();
  };
  EXPECT_THROW(run_ranks(2, 1, fail_on_one), Error);
}

}  // namespace
}  // namespace strake::comm::observed_comm_test
