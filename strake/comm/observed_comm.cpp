#include "strake/comm/observed_comm.h"

#include <utility>

#include "strake/core/clock.h"

namespace strake::comm {
namespace {

using Tell = std::function<void(const CommOperation&)>;

int64_t bytes_of(const at::Tensor& values) { return static_cast<int64_t>(values.nbytes()); }

class ObservedComm final : public Comm {
 public:
  ObservedComm(Comm& comm, Tell tell) : comm_(comm), tell_(std::move(tell)) {}
  ObservedComm(std::unique_ptr<Comm> comm, Tell tell)
      : owned_(std::move(comm)), comm_(*owned_), tell_(std::move(tell)) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  bool is_one_process() const override { return comm_.is_one_process(); }
  std::chrono::seconds patience() const override { return comm_.patience(); }
  void check_others() override { comm_.check_others(); }
  RankWatch* watch() override { return comm_.watch(); }
  bool shares_memory() const override { return comm_.shares_memory(); }
  at::Tensor share_zeros(int64_t numel, at::ScalarType dtype) override { return comm_.share_zeros(numel, dtype); }
  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) override {
    return comm_.share_made(make);
  }
  std::unique_ptr<Comm> split(int color) override { return std::make_unique<ObservedComm>(comm_.split(color), tell_); }
  void abort(ErrorKind kind, const std::string& reason) override { comm_.abort(kind, reason); }

  void all_reduce(at::Tensor& values) override {
    observe("all_reduce", bytes_of(values), [&] { comm_.all_reduce(values); });
  }
  void reduce_scatter(const Addend& full, int contributors, const tensors::ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override {
    const int64_t bytes = layout.numel() * full.values.element_size();
    observe("reduce_scatter", bytes, [&] { comm_.reduce_scatter(full, contributors, layout, shard, fold); });
  }
  void all_gather(at::Tensor& full, const tensors::ShardLayout& layout) override {
    observe("all_gather", bytes_of(full), [&] { comm_.all_gather(full, layout); });
  }
  void broadcast(at::Tensor& values, int root) override {
    observe("broadcast", bytes_of(values), [&] { comm_.broadcast(values, root); });
  }
  void send(const at::Tensor& values, int destination) override {
    observe("send", bytes_of(values), [&] { comm_.send(values, destination); });
  }
  void recv(at::Tensor& values, int source) override {
    observe("recv", bytes_of(values), [&] { comm_.recv(values, source); });
  }
  void barrier() override {
    observe("barrier", 0, [&] { comm_.barrier(); });
  }

 private:
  template <typename Operation>
  void observe(const char* name, int64_t bytes, const Operation& operation) const {
    const auto start = Clock::now();
    operation();
    tell_({.name = name, .bytes = bytes, .num_ranks = comm_.size(), .seconds = seconds_since(start)});
  }

  std::unique_ptr<Comm> owned_;
  Comm& comm_;
  Tell tell_;
};

}  // namespace

std::unique_ptr<Comm> observe(Comm& comm, Tell tell) { return std::make_unique<ObservedComm>(comm, std::move(tell)); }

}  // namespace strake::comm
