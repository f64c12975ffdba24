#include "strake/comm/thread_comm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>

#include "strake/core/test_error.h"

namespace strake::comm::thread_comm_test {
namespace {

using namespace std::chrono_literals;
using tensors::ShardLayout;

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, AllReduceGivesEveryRankTheSumInRankOrder) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    // 1e8 absorbs the ones that are added after it, so another order would give another number.
    at::Tensor values = at::full({40000}, comm.rank() == 0 ? 1e8F : 1.0F);
    comm.all_reduce(values);
    float expected = 1e8F;
    for (int rank = 1; rank < comm.size(); ++rank) expected += 1.0F;
    EXPECT_TRUE(values.equal(at::full({40000}, expected)));
  });
}

TEST_P(Collectives, ReduceScatterFoldsOntoTheShard) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    constexpr int64_t kLength = 100000;
    const ShardLayout layout(kLength, comm.size());
    const at::Tensor full = at::arange(kLength).to(at::kFloat) + static_cast<double>(comm.rank());
    at::Tensor shard = at::full({layout.size(comm.rank())}, 5.0F);
    const auto expected = [&](double start) {
      const int n = comm.size();
      return at::arange(layout.begin(comm.rank()), layout.end(comm.rank())).to(at::kFloat) * n + n * (n - 1) / 2.0 +
             start;
    };
    comm.reduce_scatter(full, comm.size(), layout, shard, Fold::kAdd);
    EXPECT_TRUE(shard.equal(expected(5.0)));
    comm.reduce_scatter(full, comm.size(), layout, shard, Fold::kOverwrite);
    EXPECT_TRUE(shard.equal(expected(0.0)));
    comm.reduce_scatter(comm.rank() == 0 ? full : at::empty({0}), 1, layout, shard, Fold::kOverwrite);
    EXPECT_TRUE(shard.equal(at::arange(layout.begin(comm.rank()), layout.end(comm.rank())).to(at::kFloat)));
  });
}

TEST_P(Collectives, KeepNothingOfWhatRanksBrought) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    at::Tensor values = at::full({40000}, 1.0F);
    const ShardLayout layout(values.numel(), comm.size());
    at::Tensor shard = at::empty({layout.size(comm.rank())});
    const auto expect_own = [&] { EXPECT_EQ(values.use_count(), 1U); };
    comm.all_reduce(values);
    expect_own();
    comm.reduce_scatter(values, comm.size(), layout, shard, Fold::kOverwrite);
    expect_own();
    comm.all_gather(values, layout);
    expect_own();
    comm.broadcast(values, 0);
    expect_own();
  });
}

TEST_P(Collectives, ReduceScatterOfSixteenBitsRoundsEachAdditionToTheShard) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    constexpr int64_t kLength = 100000;
    const ShardLayout layout(kLength, comm.size());
    // bf16 has no 257: a sum in bf16 stays 256.
    const at::Tensor full = at::full({kLength}, comm.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    at::Tensor wide = at::zeros({layout.size(comm.rank())});
    comm.reduce_scatter(full, comm.size(), layout, wide, Fold::kOverwrite);
    EXPECT_TRUE(wide.equal(at::full_like(wide, 255.0 + comm.size())));
    at::Tensor narrow = at::zeros({layout.size(comm.rank())}, at::kBFloat16);
    comm.reduce_scatter(full, comm.size(), layout, narrow, Fold::kOverwrite);
    EXPECT_TRUE(narrow.equal(at::full_like(narrow, 256.0)));
    comm.reduce_scatter(comm.rank() == 0 ? full : at::empty({0}, at::kBFloat16), 1, layout, wide, Fold::kOverwrite);
    EXPECT_TRUE(wide.equal(at::full_like(wide, 256.0)));
  });
}

TEST_P(Collectives, ReduceScatterReadsOfARankOnlyWhatItTouches) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    constexpr int64_t kChunk = tensors::TouchedChunks::kChunk;
    constexpr int64_t kChunks = 100;
    const ShardLayout layout(kChunks * kChunk - 7, comm.size());
    // Rank r touches chunks r and 50 and every 30th.
    const auto touches = [](int rank, int64_t chunk) { return chunk == rank || chunk == 50 || chunk % 30 == 29; };
    at::Tensor full = at::zeros({layout.end(comm.size() - 1)});
    auto touched = tensors::TouchedChunks::none(full.numel());
    at::Tensor expected = at::zeros({full.numel()});
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      const int64_t begin = chunk * kChunk;
      const int64_t count = std::min(kChunk, full.numel() - begin);
      for (int rank = 0; rank < comm.size(); ++rank) {
        if (touches(rank, chunk)) expected.narrow(0, begin, count).add_(rank + 1.0);
      }
      if (touches(comm.rank(), chunk)) {
        full.narrow(0, begin, count).fill_(comm.rank() + 1.0);
        touched.add(begin + 3, begin + 4);
      } else {
        full.narrow(0, begin, count).fill_(std::nanf(""));
      }
    }
    expected = expected.narrow(0, layout.begin(comm.rank()), layout.size(comm.rank()));
    at::Tensor shard = at::full_like(expected, 5.0F);
    comm.reduce_scatter({full, touched}, comm.size(), layout, shard, Fold::kAdd);
    EXPECT_TRUE(shard.equal(expected + 5.0));
    comm.reduce_scatter({full, touched}, comm.size(), layout, shard, Fold::kOverwrite);
    EXPECT_TRUE(shard.equal(expected));
    comm.reduce_scatter(full, comm.size(), layout, shard, Fold::kOverwrite);
    if (shard.numel() == 0) return;
    EXPECT_TRUE(shard.isnan().any().item<bool>()) << "all of it is read if nothing is known";
  });
}

TEST_P(Collectives, AllGatherCompletesEveryCopy) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    constexpr int64_t kLength = 100000;
    const ShardLayout layout(kLength, comm.size());
    at::Tensor full = at::zeros({kLength});
    const int64_t begin = layout.begin(comm.rank());
    full.narrow(0, begin, layout.size(comm.rank())).copy_(at::arange(begin, layout.end(comm.rank())));
    comm.all_gather(full, layout);
    EXPECT_TRUE(full.equal(at::arange(kLength).to(at::kFloat)));
  });
}

TEST_P(Collectives, BroadcastAndPointToPoint) {
  run_ranks(GetParam(), 1, [](Comm& comm) {
    at::Tensor values = at::full({3}, static_cast<double>(comm.rank()));
    comm.broadcast(values, comm.size() - 1);
    EXPECT_EQ(values[0].item<float>(), static_cast<float>(comm.size() - 1));
    if (comm.rank() > 0) {
      comm.send(at::full({2}, 10.0 + comm.rank()), 0);
    } else {
      for (int source = comm.size() - 1; source > 0; --source) {
        at::Tensor received = at::zeros({2});
        comm.recv(received, source);
        EXPECT_EQ(received[1].item<float>(), 10.0F + static_cast<float>(source));
      }
    }
    comm.barrier();
    const std::vector<double> gathered = all_gather_values(comm, {0.5 * comm.rank(), 7.0});
    const auto last = static_cast<size_t>(comm.size() - 1);
    ASSERT_EQ(gathered.size(), 2 * last + 2);
    EXPECT_EQ(gathered[2 * last], 0.5 * static_cast<double>(last));
  });
}

TEST_P(Collectives, AFailingRankStopsTheOthersWithItsNameAndCause) {
  const int failing = GetParam() - 1;
  const Caught error = error_of([&] {
    run_ranks(GetParam(), 1, [&](Comm& comm) {
      if (comm.rank() == failing) fail(ErrorKind::kData, "row 7 is broken");
      for (int i = 0; i < 1000; ++i) comm.barrier();
    });
  });
  EXPECT_EQ(error.text_of(ErrorKind::kData), "row 7 is broken");
}

// Does not come to the collective of the others, but stops with them.
void come_late(Comm& comm) {
  while (true) {
    comm.check_others();
    std::this_thread::sleep_for(1ms);
  }
}

template <typename Collective>
std::string error_of_waiting(const Collective& collective) {
  const auto work = [&](Comm& comm) {
    if (comm.rank() == 1) return come_late(comm);
    collective(comm);
  };
  return error_of([&] { run_ranks(3, 1, work, 2s); }).text;
}

TEST(RunRanks, NamesTheRankThatLetsTheOthersWait) {
  EXPECT_EQ(error_of_waiting([](Comm& comm) { comm.barrier(); }),
            "rank 1 has not come to a collective for 2 s (--ddp_timeout)");
  EXPECT_EQ(error_of_waiting([](Comm& comm) {
              at::Tensor values = at::zeros({3});
              if (comm.rank() == 0) comm.recv(values, 1);
              if (comm.rank() == 2) come_late(comm);
            }),
            "rank 1 has not come to send for 2 s (--ddp_timeout)");
}

TEST(RunRanksDeathTest, EndsTheProcessWhoseRankDoesNotComeBack) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_ranks(2, 1,
                        [](Comm& comm) {
                          if (comm.rank() == 1) std::this_thread::sleep_for(60s);
                          fail(ErrorKind::kData, "row 7 is broken");
                        }),
              testing::ExitedWithCode(exit_code(ErrorKind::kData)), "strake: data error: row 7 is broken");
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 8));

TEST(ThreadComm, ALateRankOfAPartHasItsNumberInTheWhole) {
  const auto work = [](Comm& comm) {
    const auto part = comm.split(comm.rank() / 2);
    if (comm.rank() != 3) part->barrier();
    if (comm.rank() == 3) std::this_thread::sleep_for(1500ms);
  };
  EXPECT_THAT(error_of([&] { run_ranks(4, 1, work, 1s); }).text, testing::HasSubstr("rank 3"));
}

}  // namespace
}  // namespace strake::comm::thread_comm_test
