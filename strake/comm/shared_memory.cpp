#include "strake/comm/shared_memory.h"

#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>

#include "strake/comm/memory_file.h"
#include "strake/core/error.h"
#include "strake/core/memory.h"
#include "strake/tensors/tracked_memory.h"

namespace strake::comm {
namespace {

// Rank 0's.
MemoryFile::Place broadcast_place(Comm& comm, const std::optional<MemoryFile>& file) {
  at::Tensor words = at::zeros({4}, at::kLong);
  auto* const data = words.mutable_data_ptr<int64_t>();
  if (file) {
    const MemoryFile::Place own = file->place();
    data[0] = own.process;
    data[1] = own.descriptor;
    data[2] = own.device;
    data[3] = own.inode;
  }
  comm.broadcast(words, 0);
  return {.process = data[0], .descriptor = data[1], .device = data[2], .inode = data[3]};
}

}  // namespace

std::shared_ptr<void> share_memory(Comm& comm, size_t bytes, OwnBytes own) {
  std::optional<MemoryFile> file;
  together(comm, [&] {
    if (comm.rank() == 0) file.emplace(MemoryFile::make(bytes));
  });
  const MemoryFile::Place place = broadcast_place(comm, file);
  std::shared_ptr<void> mapped;
  together(comm, [&] {
    if (comm.rank() > 0) file.emplace(MemoryFile::find(place, bytes));
    mapped = file->map(own.begin, own.count);
  });
  const auto counted = static_cast<int64_t>(own.count);
  tensors::count_other_memory(counted);
  return {mapped.get(), [mapped, counted](void*) { tensors::count_other_memory(-counted); }};
}

std::optional<std::string> reason_not_to_share_memory() {
  const char* const variable = std::getenv("STRAKE_SHARED_MEMORY");
  const std::string_view setting = variable == nullptr ? "1" : variable;
  require(setting == "0" || setting == "1", ErrorKind::kUsage, "STRAKE_SHARED_MEMORY={} is neither 0 nor 1",
          printable(setting));
  if (setting == "0") return "STRAKE_SHARED_MEMORY=0";
  const MemoryLimit limit = memory_limit();
  if (limit.of != MemoryLimit::Of::kAddressSpace) return std::nullopt;
  return fmt::format("{}, which counts the memory of each rank by itself", limit.source);
}

std::optional<std::string> try_to_share_memory(Comm& comm, const std::optional<std::string>& own_reason_not_to) {
  try {
    together(comm, [&] {
      if (own_reason_not_to) fail(ErrorKind::kIo, "{}", *own_reason_not_to);
    });
    const std::shared_ptr<void> memory = share_memory(comm, sizeof(int64_t), {});
    at::Tensor secret = at::zeros({1}, at::kLong);
    if (comm.rank() == 0) {
      std::random_device random;
      secret.fill_(static_cast<int64_t>(random()) << 31 | random());
      std::memcpy(memory.get(), secret.const_data_ptr(), sizeof(int64_t));
    }
    comm.broadcast(secret, 0);
    together(comm, [&] {
      const bool is_same = std::memcmp(memory.get(), secret.const_data_ptr(), sizeof(int64_t)) == 0;
      require(is_same, ErrorKind::kIo, "rank 0 is on another host");
    });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    return error.what();
  }
  return std::nullopt;
}

}  // namespace strake::comm
