// NcclComm without GPUs: a stand-in for NCCL moves bytes between threads, and tensors of "the device" are the host's.
// That shows which bytes go where and in which order they are added, not how NCCL and streams behave.
#include "strake/comm/nccl_comm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "strake/comm/staged_comm.h"
#include "strake/comm/thread_comm.h"
#include "strake/core/test_error.h"

extern "C" const strake::kernels::cuda::CudaTable* strake_cuda_table();

namespace strake::comm::nccl_comm_test {
namespace {

using tensors::ShardLayout;

// One group of ranks, found by its id.
struct FakeGroup {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::vector<std::vector<char>>> mail;  // by source and destination
  int ranks = 0;
};
struct FakeRank {
  std::shared_ptr<FakeGroup> group;
  int rank;
};

std::mutex groups_mutex;
std::map<int, std::shared_ptr<FakeGroup>> groups;  // by id
int next_group = 1;
thread_local std::vector<std::function<void()>> posts, takes;  // of the open group of calls

FakeRank& fake(NcclHandle handle) { return *static_cast<FakeRank*>(handle); }

void post(FakeRank& from, int to, const void* data, size_t bytes) {
  const std::lock_guard lock(from.group->mutex);
  const auto* begin = static_cast<const char*>(data);
  from.group->mail[{from.rank, to}].emplace_back(begin, begin + bytes);
  from.group->changed.notify_all();
}

void take(FakeRank& to, int from, void* data, size_t bytes) {
  std::unique_lock lock(to.group->mutex);
  auto& letters = to.group->mail[{from, to.rank}];
  to.group->changed.wait(lock, [&] { return !letters.empty(); });
  ASSERT_EQ(letters.front().size(), bytes) << "sizes of a message differ";
  std::memcpy(data, letters.front().data(), bytes);
  letters.erase(letters.begin());
}

int fake_version(int* version) {
  *version = 22809;
  return 0;
}
int fake_id(NcclId* id) {
  const std::lock_guard lock(groups_mutex);
  std::memcpy(id->bytes, &next_group, sizeof(next_group));
  groups[next_group++] = std::make_shared<FakeGroup>();
  return 0;
}
int fake_init(NcclHandle* comm, int ranks, NcclId id, int rank) {
  int number = 0;
  std::memcpy(&number, id.bytes, sizeof(number));
  const std::lock_guard lock(groups_mutex);
  if (groups.at(number)->ranks == 0) groups.at(number)->ranks = ranks;  // later it is read without the lock
  *comm = std::make_unique<FakeRank>(FakeRank{groups.at(number), rank}).release();
  return 0;
}
int fake_destroy(NcclHandle comm) {
  const std::unique_ptr<FakeRank> owner(static_cast<FakeRank*>(comm));
  return 0;
}
int fake_async_error(NcclHandle, int* error) { return *error = 0; }
int fake_start() { return 0; }
int fake_end() {
  for (const auto& call : std::exchange(posts, {})) call();
  for (const auto& call : std::exchange(takes, {})) call();
  return 0;
}
// NOLINTBEGIN(readability-function-size): NCCL's parameters.
int fake_send(const void* from, size_t count, int, int peer, NcclHandle comm, void*) {
  posts.push_back([=] { post(fake(comm), peer, from, count); });
  return 0;
}
int fake_recv(void* to, size_t count, int, int peer, NcclHandle comm, void*) {
  takes.push_back([=] { take(fake(comm), peer, to, count); });
  return 0;
}
int fake_broadcast(const void* from, void* to, size_t count, int type, int root, NcclHandle comm, void* stream) {
  if (fake(comm).rank != root) return fake_recv(to, count, type, root, comm, stream);
  for (int peer = 0; peer < fake(comm).group->ranks; ++peer) {
    if (peer != root) fake_send(from, count, type, peer, comm, stream);
  }
  return 0;
}
// NOLINTEND(readability-function-size)
const char* fake_error_text(int) { return "stand-in"; }

constexpr NcclTable kFake{.error_text = &fake_error_text,
                          .get_version = &fake_version,
                          .get_unique_id = &fake_id,
                          .init_rank = &fake_init,
                          .destroy = &fake_destroy,
                          .abort = &fake_destroy,
                          .async_error = &fake_async_error,
                          .group_start = &fake_start,
                          .group_end = &fake_end,
                          .send = &fake_send,
                          .recv = &fake_recv,
                          .broadcast = &fake_broadcast};

void run_nccl_ranks(int ranks, const NcclTable& table, const std::function<void(Comm&)>& body) {
  run_ranks(ranks, 1, [&](Comm& host) {
    body(*make_nccl_comm({.host = host, .nccl = table, .cuda = *strake_cuda_table(), .device = at::kCPU}));
  });
}

class NcclCollectives : public testing::TestWithParam<int> {};

TEST_P(NcclCollectives, AddInRankOrder) {
  run_nccl_ranks(GetParam(), kFake, [](Comm& comm) {
    // 1e8 absorbs the ones that are added after it, so another order would give another number.
    for (const int64_t length : {3, 40000}) {
      at::Tensor values = at::full({length}, comm.rank() == 0 ? 1e8F : 1.0F);
      comm.all_reduce(values);
      float expected = 1e8F;
      for (int rank = 1; rank < comm.size(); ++rank) expected += 1.0F;
      EXPECT_TRUE(values.equal(at::full({length}, expected)));
    }
  });
}

TEST_P(NcclCollectives, ReduceScatterFoldsOntoTheShard) {
  run_nccl_ranks(GetParam(), kFake, [](Comm& comm) {
    constexpr int64_t kLength = 2 * staging_window(1) + 12345;  // several windows for few ranks
    const ShardLayout layout(kLength, comm.size());
    const at::Tensor full = (at::arange(kLength) % 64 + static_cast<double>(comm.rank())).to(at::kFloat);
    const int n = comm.size();
    const at::Tensor mine = (at::arange(layout.begin(comm.rank()), layout.end(comm.rank())) % 64).to(at::kFloat);
    at::Tensor shard = at::full({layout.size(comm.rank())}, 5.0F);
    comm.reduce_scatter(full, n, layout, shard, Fold::kAdd);
    EXPECT_TRUE(shard.equal(mine * n + n * (n - 1) / 2.0 + 5));
    comm.reduce_scatter(comm.rank() == 0 ? full : at::empty({0}), 1, layout, shard, Fold::kOverwrite);
    EXPECT_TRUE(shard.equal(mine));
    at::Tensor narrow = at::zeros({layout.size(comm.rank())}, at::kBFloat16);
    comm.reduce_scatter(at::full({kLength}, comm.rank() == 0 ? 256.0 : 1.0, at::kBFloat16), n, layout, narrow,
                        Fold::kOverwrite);
    // bf16 has no 257.
    EXPECT_TRUE(narrow.equal(at::full({layout.size(comm.rank())}, 256.0, at::kBFloat16)));
  });
}

TEST_P(NcclCollectives, GatherBroadcastAndSend) {
  run_nccl_ranks(GetParam(), kFake, [](Comm& comm) {
    constexpr int64_t kLength = 100000;
    const ShardLayout layout(kLength, comm.size());
    const at::Tensor want = at::arange(kLength).to(at::kFloat);
    at::Tensor full = at::zeros({kLength});
    const int64_t begin = layout.begin(comm.rank()), size = layout.size(comm.rank());
    full.narrow(0, begin, size).copy_(want.narrow(0, begin, size));
    comm.all_gather(full, layout);
    EXPECT_TRUE(full.equal(want));
    at::Tensor values = at::full({7}, static_cast<double>(comm.rank()), at::kHalf);
    comm.broadcast(values, comm.size() - 1);
    EXPECT_TRUE(values.equal(at::full({7}, static_cast<double>(comm.size() - 1), at::kHalf)));
    at::Tensor number = at::full({1}, static_cast<double>(comm.rank()));
    if (comm.rank() > 0) comm.send(number, comm.rank() - 1);
    if (comm.rank() + 1 < comm.size()) {
      comm.recv(number, comm.rank() + 1);
      EXPECT_EQ(number.item<float>(), static_cast<float>(comm.rank() + 1));
    }
  });
}

TEST_P(NcclCollectives, SplitIntoGroups) {
  run_nccl_ranks(GetParam(), kFake, [](Comm& comm) {
    const auto part = comm.split(comm.rank() % 2);
    at::Tensor sum = at::full({5}, static_cast<double>(comm.rank()));
    part->all_reduce(sum);
    double expected = 0;
    for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2) expected += rank;
    EXPECT_TRUE(sum.equal(at::full({5}, expected)));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, testing::Values(1, 2, 3, 4));

TEST(NcclComm, SaysWhichCallFailed) {
  NcclTable failing = kFake;
  failing.group_end = [] {
    fake_end();
    return 5;
  };
  EXPECT_TRUE(error_of([&] {
                run_nccl_ranks(1, failing, [](Comm& comm) {
                  at::Tensor values = at::zeros({5});
                  comm.broadcast(values, 0);
                });
              }).says(ErrorKind::kComm, "broadcast failed: stand-in"));
}

TEST(NcclComm, LeavesOtherDevicesToTheHost) {
  run_ranks(2, 1, [](Comm& host) {
    const auto comm =
        make_nccl_comm({.host = host, .nccl = kFake, .cuda = *strake_cuda_table(), .device = at::Device(at::kMeta)});
    EXPECT_EQ(all_gather_values(*comm, {1.0 + comm->rank()}), (std::vector<double>{1, 2}));
  });
}

// The ranks of a group of threads, taken for processes.
class AsProcesses final : public Comm {
 public:
  explicit AsProcesses(Comm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  bool is_one_process() const override { return false; }
  void all_reduce(at::Tensor& values) override { comm_.all_reduce(values); }
  void reduce_scatter(const Addend& full, int contributors, const ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override {
    comm_.reduce_scatter(full, contributors, layout, shard, fold);
  }
  void all_gather(at::Tensor& full, const ShardLayout& layout) override { comm_.all_gather(full, layout); }
  void broadcast(at::Tensor& values, int root) override { comm_.broadcast(values, root); }
  void send(const at::Tensor& values, int destination) override { comm_.send(values, destination); }
  void recv(at::Tensor& values, int source) override { comm_.recv(values, source); }
  void barrier() override { comm_.barrier(); }
  void check_others() override { comm_.check_others(); }
  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) override { return make(); }
  std::unique_ptr<Comm> split(int color) override { return comm_.split(color); }
  void abort(ErrorKind kind, const std::string& reason) override { comm_.abort(kind, reason); }

 private:
  Comm& comm_;
};

std::atomic<int> num_aborted = 0;
std::atomic<int> num_destroyed = 0;

TEST(NcclComm, IsLeftToTheEndOfAProcessThatFails) {
  NcclTable counting = kFake;
  counting.abort = [](NcclHandle comm) {
    ++num_aborted;
    return fake_destroy(comm);
  };
  counting.destroy = [](NcclHandle comm) {
    ++num_destroyed;
    return fake_destroy(comm);
  };
  const auto fails_after_making = [&](Comm& host) {
    const auto comm =
        make_nccl_comm({.host = host, .nccl = counting, .cuda = *strake_cuda_table(), .device = at::kCPU});
    fail(ErrorKind::kIo, "a full disk");
  };
  SelfComm thread;
  EXPECT_TRUE(error_of([&] { fails_after_making(thread); }).says(ErrorKind::kIo, "a full disk"));
  EXPECT_EQ(num_aborted, 1) << "threads end each other's";
  AsProcesses process(thread);
  EXPECT_TRUE(error_of([&] { fails_after_making(process); }).says(ErrorKind::kIo, "a full disk"));
  EXPECT_EQ(num_aborted, 1) << "it would wait for processes that have not been told";
  make_nccl_comm({.host = process, .nccl = counting, .cuda = *strake_cuda_table(), .device = at::kCPU});
  EXPECT_EQ(num_destroyed, 1);
}

void expect_news_of_rank_1(const NcclTable& failing) {
  kernels::cuda::CudaTable never_done = *strake_cuda_table();
  never_done.is_done = [](void*, int* done) { return *done = 0; };
  const auto train = [&](Comm& host) {
    const auto comm = make_nccl_comm({.host = host, .nccl = failing, .cuda = never_done, .device = at::kCPU});
    if (comm->rank() == 1) fail(ErrorKind::kIo, "a full disk");
    at::Tensor values = at::zeros({5});
    EXPECT_TRUE(error_of([&] { comm->broadcast(values, 0); }).says(ErrorKind::kComm, "rank 1 stopped"));
  };
  EXPECT_TRUE(error_of([&] { run_ranks(2, 1, train); }).says(ErrorKind::kIo, "a full disk"));
}

TEST(NcclComm, SaysWhichRankIsGoneRatherThanWhatNcclSawOfIt) {
  NcclTable failing = kFake;
  failing.async_error = [](NcclHandle, int* error) {
    *error = 6;
    return 0;
  };
  expect_news_of_rank_1(failing);
  failing = kFake;
  failing.group_end = [] { return 6; };
  expect_news_of_rank_1(failing);
}

}  // namespace
}  // namespace strake::comm::nccl_comm_test
