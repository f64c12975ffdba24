#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace strake {

// Reads and writes that the kernel carries out beside the program: io_uring (Axboe 2019, "Efficient IO with io_uring"),
// by its system calls alone. For one thread.
class IoRing {
 public:
  // Room for `depth` requests, or null where the kernel lacks io_uring or forbids it.
  static std::unique_ptr<IoRing> open(unsigned depth);
  virtual ~IoRing() = default;

  struct Request {
    bool is_read = true;
    int descriptor = -1;
    std::byte* memory = nullptr;
    size_t bytes = 0;  // less than 2^31
    uint64_t offset = 0;
    uint64_t tag = 0;  // comes back with the completion
  };
  struct Completion {
    uint64_t tag = 0;
    int64_t result = 0;  // bytes, maybe fewer than asked for, or -errno
  };

  // Hands a request over; at most `depth` may be without completion.
  virtual void submit(const Request& request) = 0;
  // Waits for a request to end; nothing if the kernel refuses, with the reason in errno.
  virtual std::optional<Completion> wait() = 0;
};

}  // namespace strake
