#include "strake/core/io_ring.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "strake/core/error.h"

namespace strake {
namespace {

int enter(int ring, unsigned submitted, unsigned wanted) {
  const unsigned flags = wanted > 0 ? IORING_ENTER_GETEVENTS : 0;
  return static_cast<int>(::syscall(SYS_io_uring_enter, ring, submitted, wanted, flags, nullptr, size_t{0}));
}

// Memory that program and kernel share.
class SharedRing {
 public:
  SharedRing(int ring, size_t bytes, int64_t place)
      : memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, place)),
        bytes_(bytes) {}
  ~SharedRing() {
    if (is_mapped()) ::munmap(memory_, bytes_);
  }
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  bool is_mapped() const { return memory_ != MAP_FAILED; }
  template <typename T>
  T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + offset);
  }

 private:
  void* memory_;
  size_t bytes_;
};

class KernelRing final : public IoRing {
 public:
  KernelRing(int ring, const io_uring_params& params)
      : ring_(ring),
        submissions_(ring, params.sq_off.array + params.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING),
        completions_(ring, params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING),
        entries_(ring, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES),
        params_(params) {}
  ~KernelRing() override { ::close(ring_); }

  bool is_mapped() const { return submissions_.is_mapped() && completions_.is_mapped() && entries_.is_mapped(); }

  void submit(const Request& request) override {
    const std::atomic_ref tail(*submissions_.at<uint32_t>(params_.sq_off.tail));
    const uint32_t mask = *submissions_.at<uint32_t>(params_.sq_off.ring_mask);
    const uint32_t position = tail.load(std::memory_order_relaxed);
    const uint32_t slot = position & mask;
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[slot];
    entry = {};
    entry.opcode = request.is_read ? IORING_OP_READ : IORING_OP_WRITE;
    entry.fd = request.descriptor;
    entry.addr = reinterpret_cast<uint64_t>(request.memory);
    entry.len = static_cast<uint32_t>(request.bytes);
    entry.off = request.offset;
    entry.user_data = request.tag;
    submissions_.at<uint32_t>(params_.sq_off.array)[slot] = slot;
    tail.store(position + 1, std::memory_order_release);
    ++unsubmitted_;
  }

  std::optional<Completion> wait() override {
    const std::atomic_ref head(*completions_.at<uint32_t>(params_.cq_off.head));
    const std::atomic_ref tail(*completions_.at<uint32_t>(params_.cq_off.tail));
    const uint32_t position = head.load(std::memory_order_relaxed);
    while (unsubmitted_ > 0 || tail.load(std::memory_order_acquire) == position) {
      const bool has_one = tail.load(std::memory_order_acquire) != position;
      const int taken = enter(ring_, unsubmitted_, has_one ? 0 : 1);
      if (taken < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return std::nullopt;
      unsubmitted_ -= static_cast<unsigned>(std::max(taken, 0));
    }
    const uint32_t mask = *completions_.at<uint32_t>(params_.cq_off.ring_mask);
    const io_uring_cqe& entry = completions_.at<io_uring_cqe>(params_.cq_off.cqes)[position & mask];
    const Completion completion{.tag = entry.user_data, .result = entry.res};
    head.store(position + 1, std::memory_order_release);
    return completion;
  }

 private:
  int ring_;
  SharedRing submissions_;
  SharedRing completions_;
  SharedRing entries_;
  io_uring_params params_;
  unsigned unsubmitted_ = 0;
};

// Kernels before 5.6 have rings without plain reads and writes.
bool can_read_and_write(int ring) {
  constexpr unsigned kOperations = 64;
  alignas(io_uring_probe) std::array<std::byte, sizeof(io_uring_probe) + kOperations * sizeof(io_uring_probe_op)>
      memory{};
  auto* probe = reinterpret_cast<io_uring_probe*>(memory.data());
  if (::syscall(SYS_io_uring_register, ring, IORING_REGISTER_PROBE, probe, kOperations) != 0) return false;
  const auto has = [&](unsigned operation) {
    return operation <= probe->last_op && (probe->ops[operation].flags & IO_URING_OP_SUPPORTED) != 0;
  };
  return has(IORING_OP_READ) && has(IORING_OP_WRITE);
}

}  // namespace

std::unique_ptr<IoRing> IoRing::open(unsigned depth) {
  require(depth > 0, ErrorKind::kInternal, "a ring without room");
  io_uring_params params{};
  const int ring = static_cast<int>(::syscall(SYS_io_uring_setup, depth, &params));
  if (ring < 0) return nullptr;
  if (!can_read_and_write(ring)) {
    ::close(ring);
    return nullptr;
  }
  auto opened = std::make_unique<KernelRing>(ring, params);
  if (!opened->is_mapped()) return nullptr;
  return opened;
}

}  // namespace strake
