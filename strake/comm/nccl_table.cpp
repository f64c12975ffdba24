#include "strake/comm/nccl_table.h"

#include <dlfcn.h>

#include "strake/core/error.h"

namespace strake::comm {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  require(function != nullptr, ErrorKind::kConfig, "NCCL: the library lacks {}", name);
}

}  // namespace

NcclTable open_nccl(const std::filesystem::path& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, ErrorKind::kConfig,
          "several ranks on GPUs need NCCL: {}. Install it with pip install nvidia-nccl-cu13", ::dlerror());
  NcclTable table{};
  find(library, "ncclGetErrorString", table.error_text);
  find(library, "ncclGetVersion", table.get_version);
  find(library, "ncclGetUniqueId", table.get_unique_id);
  find(library, "ncclCommInitRank", table.init_rank);
  find(library, "ncclCommDestroy", table.destroy);
  find(library, "ncclCommAbort", table.abort);
  find(library, "ncclCommGetAsyncError", table.async_error);
  find(library, "ncclGroupStart", table.group_start);
  find(library, "ncclGroupEnd", table.group_end);
  find(library, "ncclSend", table.send);
  find(library, "ncclRecv", table.recv);
  find(library, "ncclBroadcast", table.broadcast);
  int version = 0;
  const int error = table.get_version(&version);
  require(error == 0 && version >= 20700, ErrorKind::kConfig, "NCCL {}: at least 2.7 is needed, for sending", version);
  return table;
}

const NcclTable& nccl() {
  static const NcclTable table = open_nccl("libnccl.so.2");
  return table;
}

}  // namespace strake::comm
