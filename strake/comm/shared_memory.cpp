#include "strake/comm/shared_memory.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
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

// All ranks hear of it if one has failed.
bool all_agree(Comm& comm, bool own) {
  const std::vector<double> all = all_gather_values(comm, {own ? 1.0 : 0.0});
  return std::ranges::all_of(all, [](double each) { return each != 0; });
}

// Rank 0's; a process number of 0 is nobody's.
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

SharedMemory share_memory(Comm& comm, size_t bytes) {
  SharedMemory memory;
  std::optional<MemoryFile> file;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const Error& error) {
      memory.problem = error.what();
    }
  };
  attempt([&] {
    if (comm.rank() == 0) file.emplace(MemoryFile::make(bytes));
  });
  const MemoryFile::Place place = broadcast_place(comm, file);
  const auto ranks = static_cast<size_t>(comm.size());
  const size_t part = (bytes + ranks - 1) / ranks;
  const size_t own = std::min(part, bytes - std::min(bytes, part * static_cast<size_t>(comm.rank())));
  attempt([&] {
    if (comm.rank() > 0 && place.process != 0) {
      if (auto found = MemoryFile::find(place, bytes)) file.emplace(std::move(*found));
    }
    if (file) memory.data = file->map();
  });
  if (!all_agree(comm, memory.data != nullptr)) {
    if (memory.problem.empty()) memory.problem = "another rank cannot have memory in common with the others";
    memory.data = nullptr;
    return memory;
  }
  tensors::count_other_memory(static_cast<int64_t>(own));
  memory.data = {memory.data.get(),
                 [mapped = memory.data, own](void*) { tensors::count_other_memory(-static_cast<int64_t>(own)); }};
  return memory;
}

bool may_share_memory() {
  const char* const variable = std::getenv("STRAKE_SHARED_MEMORY");
  const std::string_view setting = variable == nullptr ? "1" : variable;
  require(setting == "0" || setting == "1", ErrorKind::kUsage, "STRAKE_SHARED_MEMORY={} is neither 0 nor 1",
          printable(setting));
  return setting == "1" && memory_limit().of != MemoryLimit::Of::kAddressSpace;
}

bool can_share_memory(Comm& comm) {
  if (!all_agree(comm, may_share_memory())) return false;
  const SharedMemory memory = share_memory(comm, sizeof(int64_t));
  if (memory.data == nullptr) return false;
  at::Tensor secret = at::zeros({1}, at::kLong);
  if (comm.rank() == 0) {
    std::random_device random;
    secret.fill_(static_cast<int64_t>(random()) << 31 | random());
    std::memcpy(memory.data.get(), secret.const_data_ptr(), sizeof(int64_t));
  }
  comm.broadcast(secret, 0);
  return all_agree(comm, std::memcmp(memory.data.get(), secret.const_data_ptr(), sizeof(int64_t)) == 0);
}

}  // namespace strake::comm
