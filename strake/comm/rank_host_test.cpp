#include "strake/comm/rank_host.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "strake/comm/thread_comm.h"

namespace strake::comm::rank_host_test {
namespace {

constexpr int kRanks = 4;

std::vector<int> cores_from(int first, int count) {
  std::vector<int> cores(static_cast<size_t>(count));
  std::iota(cores.begin(), cores.end(), first);
  return cores;
}

// Of four ranks, which are on one host here.
std::array<RankEnvironment, kRanks> found(const RankEnvironment& told, const std::array<ProcessCores, kRanks>& cores) {
  std::array<RankEnvironment, kRanks> environments;
  environments.fill(told);
  run_ranks(kRanks, 1, [&](Comm& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    find_host(comm, environments.at(rank), cores.at(rank));
  });
  return environments;
}

const ProcessCores kLower{.numbers = cores_from(0, 64), .available = 64};
const ProcessCores kUpper{.numbers = cores_from(64, 64), .available = 64};

TEST(RankHost, IsToldApartByItsName) {
  const auto environments = found({.size = kRanks, .knows_host = false}, {kLower, kLower, kLower, kLower});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(environments[rank].knows_host);
    EXPECT_EQ(environments[rank].local_size, kRanks);
    EXPECT_EQ(environments[rank].local_rank, rank);
    EXPECT_EQ(environments[rank].num_cores, 16);
  }
}

TEST(RankHost, BoundRanksHaveTheCoresTheyAreBoundTo) {
  const ProcessCores all{.numbers = cores_from(0, 128), .available = 128};
  const RankEnvironment told{.size = kRanks, .local_size = kRanks};
  EXPECT_EQ(found(told, {all, all, all, all})[3].num_cores, 32);
  EXPECT_EQ(found(told, {kLower, kUpper, kLower, kUpper})[2].num_cores, 32);
  EXPECT_EQ(found(told, {kLower, kUpper, kUpper, kUpper})[0].num_cores, 64);
  std::array<ProcessCores, kRanks> own;
  for (int rank = 0; rank < kRanks; ++rank) own[rank] = {.numbers = cores_from(32 * rank, 32), .available = 32};
  for (const RankEnvironment& environment : found(told, own)) EXPECT_EQ(environment.num_cores, 32);
}

TEST(RankHost, TimeOfAContainerIsDividedEvenly) {
  const ProcessCores by_time{.numbers = cores_from(0, 64), .available = 12};
  const RankEnvironment told{.size = kRanks, .local_size = kRanks};
  EXPECT_EQ(found(told, {by_time, by_time, by_time, by_time})[1].num_cores, 3);
}

TEST(RankHost, OfOneNameButNotOneHostTheLauncherKnows) {
  const RankEnvironment told{.size = kRanks, .local_size = 2};
  EXPECT_EQ(found(told, {kLower, kLower, kLower, kLower})[0].num_cores, 32);
}

}  // namespace
}  // namespace strake::comm::rank_host_test
