#include "strake/comm/nccl_comm.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "strake/comm/rank_wait.h"
#include "strake/comm/rank_watch.h"
#include "strake/comm/staged_comm.h"
#include "strake/core/error.h"
#include "strake/kernels/cuda/call.h"

namespace strake::comm {
namespace {

using tensors::ShardLayout;

class NcclComm final : public StagedComm {
 public:
  // `own_host` is settings.host if this group is its only user.
  NcclComm(const NcclSettings& settings, std::unique_ptr<Comm> own_host)
      : own_host_(std::move(own_host)),
        host_(settings.host),
        nccl_(settings.nccl),
        cuda_(settings.cuda),
        device_(settings.device) {
    const c10::DeviceGuard guard(device_);
    NcclId id{};
    if (rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    at::Tensor words = at::zeros({sizeof(id) / sizeof(int64_t)}, at::kLong);
    std::memcpy(words.mutable_data_ptr(), &id, sizeof(id));
    host_.broadcast(words, 0);
    std::memcpy(&id, words.const_data_ptr(), sizeof(id));
    kernels::cuda::check(cuda_, cuda_.make_stream(&stream_), "making a stream");
    const int error = nccl_.init_rank(&comm_, size(), id, rank());
    constexpr int kInvalidUsage = 5;
    require(error != kInvalidUsage, ErrorKind::kComm,
            "ncclCommInitRank failed: {}; NCCL says so where two ranks have the same GPU", nccl_.error_text(error));
    check(error, "ncclCommInitRank");
  }
  // Where an exception is on its way, other ranks may never take their part, and destroying would wait for them. So
  // would aborting, for the processes of this machine, which hear of the exception later, and for the device, where
  // another group's kernel stands still: what is left of such a process goes with it.
  ~NcclComm() override {
    const bool is_in_order = !is_aborted_ && std::uncaught_exceptions() <= exceptions_before_;
    if (!is_in_order && !is_one_process()) return;
    const c10::DeviceGuard guard(device_);
    if (comm_ != nullptr) is_in_order ? nccl_.destroy(comm_) : nccl_.abort(comm_);
    cuda_.destroy_stream(stream_);
  }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  bool is_one_process() const override { return host_.is_one_process(); }
  std::chrono::seconds patience() const override { return host_.patience(); }

  void all_reduce(at::Tensor& values) override {
    if (!is_here(values)) return host_.all_reduce(values);
    all_reduce_by_shards(values);
  }

  void reduce_scatter(const Addend& addend, int contributors, const ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override {
    if (!is_here(shard)) return host_.reduce_scatter(addend, contributors, layout, shard, fold);
    StagedComm::reduce_scatter(addend, contributors, layout, shard, fold);
  }

  void all_gather(at::Tensor& full, const ShardLayout& layout) override {
    if (!is_here(full)) return host_.all_gather(full, layout);
    run("all_gather", [&] {
      for (int root = 0; root < size(); ++root) {
        if (layout.size(root) > 0) broadcast_from(full.narrow(0, layout.begin(root), layout.size(root)), root);
      }
    });
  }

  void broadcast(at::Tensor& values, int root) override {
    if (!is_here(values)) return host_.broadcast(values, root);
    run("broadcast", [&] { broadcast_from(values, root); });
  }

  void send(const at::Tensor& values, int destination) override {
    if (!is_here(values)) return host_.send(values, destination);
    run("send", [&] { send_to(values, destination); });
  }

  void recv(at::Tensor& values, int source) override {
    if (!is_here(values)) return host_.recv(values, source);
    run("recv", [&] { receive_from(values, source); });
  }

  void barrier() override { host_.barrier(); }
  void check_others() override { host_.check_others(); }
  RankWatch* watch() override { return host_.watch(); }
  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) override {
    return host_.share_made(make);
  }

  std::unique_ptr<Comm> split(int color) override {
    std::unique_ptr<Comm> part = host_.split(color);
    const NcclSettings settings{.host = *part, .nccl = nccl_, .cuda = cuda_, .device = device_};
    return std::make_unique<NcclComm>(settings, std::move(part));
  }

  void abort(ErrorKind kind, const std::string& reason) override {
    is_aborted_ = true;
    host_.abort(kind, reason);
  }

 private:
  void check(int error, const char* operation) const {
    require(error == 0, ErrorKind::kComm, "{} failed: {}", operation, nccl_.error_text(error));
  }
  // NCCL may notice that a rank is gone before it is told which one.
  void check_alive(int error, const char* operation) {
    const auto start = std::chrono::steady_clock::now();
    while (error != 0 && std::chrono::steady_clock::now() - start < kGrace) {
      host_.check_others();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    check(error, operation);
  }
  bool is_here(const at::Tensor& values) const { return values.device() == device_; }

  // Of a group of calls:
  void send_to(const at::Tensor& values, int peer) const {
    check(nccl_.send(values.const_data_ptr(), values.nbytes(), kNcclUint8, peer, comm_, stream_), "ncclSend");
  }
  void receive_from(const at::Tensor& values, int peer) const {
    check(nccl_.recv(values.mutable_data_ptr(), values.nbytes(), kNcclUint8, peer, comm_, stream_), "ncclRecv");
  }
  void broadcast_from(const at::Tensor& values, int root) const {
    void* const data = values.mutable_data_ptr();
    check(nccl_.broadcast(data, data, values.nbytes(), kNcclUint8, root, comm_, stream_), "ncclBroadcast");
  }

  // Runs the calls that `give` makes as one group, behind everything that the default stream was given, and waits.
  template <typename Give>
  void run(const char* operation, const Give& give) {
    const c10::DeviceGuard guard(device_);
    kernels::cuda::check(cuda_, cuda_.wait_for_stream(stream_, nullptr), operation);
    check(nccl_.group_start(), "ncclGroupStart");
    try {
      give();
    } catch (...) {
      nccl_.group_end();  // nothing can be aborted within a group
      throw;
    }
    check_alive(nccl_.group_end(), operation);
    int done = 0;
    RankWait wait(watch(), operation, patience());
    while (true) {
      kernels::cuda::check(cuda_, cuda_.is_done(stream_, &done), operation);
      if (done != 0) return;
      int error = 0;
      check(nccl_.async_error(comm_, &error), "ncclCommGetAsyncError");
      check_alive(error, operation);
      host_.check_others();
      wait.check();
      std::this_thread::yield();
    }
  }

  void exchange(const Messages& sends, const Messages& receives) override {
    run("reduce_scatter", [&] {
      for (int other = 0; other < size(); ++other) {
        const at::Tensor& in = receives[static_cast<size_t>(other)];
        const at::Tensor& out = sends[static_cast<size_t>(other)];
        if (in.defined() && in.numel() > 0) receive_from(in, other);
        if (out.defined() && out.numel() > 0) send_to(out, other);
      }
    });
  }

  std::unique_ptr<Comm> own_host_;
  Comm& host_;
  const NcclTable& nccl_;
  const kernels::cuda::CudaTable& cuda_;
  at::Device device_;
  int exceptions_before_ = std::uncaught_exceptions();
  bool is_aborted_ = false;
  void* stream_ = nullptr;
  NcclHandle comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(const NcclSettings& settings) {
  return std::make_unique<NcclComm>(settings, nullptr);
}

}  // namespace strake::comm
