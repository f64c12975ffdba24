#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "strake/comm/nccl_comm.h"
#include "strake/comm/thread_comm.h"
#include "strake/kernels/cuda/library.h"
#include "strake/models/gpus.h"
#include "strake/training/device.h"
#include "tests/gpu/gpu.h"

namespace strake::comm::nccl_test {
namespace {

using tensors::ShardLayout;

at::Device gpu(int number) { return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(number)); }

void run_on_gpus(const std::function<void(Comm&, at::Device)>& body) {
  run_ranks(num_ranks_on_gpus(), 1, [&](Comm& host) {
    const int number = training::gpu_of_rank(host.rank());
    models::use_gpu(number);
    const auto comm =
        make_nccl_comm({.host = host, .nccl = nccl(), .cuda = kernels::cuda::library(), .device = gpu(number)});
    body(*comm, gpu(number));
  });
}

TEST(GpuNccl, AddsInRankOrderAndGathers) {
  if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
  run_on_gpus([](Comm& comm, at::Device device) {
    const int n = comm.size();
    at::Tensor values = at::full({40000}, comm.rank() == 0 ? 1e8F : 1.0F, device);
    comm.all_reduce(values);
    float expected = 1e8F;
    for (int rank = 1; rank < n; ++rank) expected += 1.0F;
    EXPECT_TRUE(values.equal(at::full({40000}, expected, device)));

    constexpr int64_t kLength = 3'000'000;  // several chunks
    const ShardLayout layout(kLength, n);
    const int64_t begin = layout.begin(comm.rank()), size = layout.size(comm.rank());
    const at::Tensor whole = (at::arange(kLength) % 64).to(device, at::kFloat);
    at::Tensor shard = at::full({size}, 5.0F, device);
    comm.reduce_scatter(whole + static_cast<double>(comm.rank()), n, layout, shard, Fold::kAdd);
    EXPECT_TRUE(shard.equal(whole.narrow(0, begin, size) * n + n * (n - 1) / 2.0 + 5));

    at::Tensor gathered = at::zeros({kLength}, device);
    gathered.narrow(0, begin, size).copy_(whole.narrow(0, begin, size));
    comm.all_gather(gathered, layout);
    EXPECT_TRUE(gathered.equal(whole));

    at::Tensor number = at::full({3}, static_cast<double>(comm.rank()), device);
    comm.broadcast(number, n - 1);
    EXPECT_TRUE(number.equal(at::full({3}, static_cast<double>(n - 1), device)));
    EXPECT_EQ(all_gather_values(comm, {1.0}), std::vector<double>(static_cast<size_t>(n), 1.0)) << "on the host";
  });
}

}  // namespace
}  // namespace strake::comm::nccl_test
