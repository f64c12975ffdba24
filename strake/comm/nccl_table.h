#pragma once

#include <cstddef>
#include <filesystem>

// The part of NCCL's C interface that NcclComm uses, as function pointers: libnccl.so.2 is opened at run time, so that
// a build needs no NCCL. Types and numbers are those of nccl.h, which are the same in all of NCCL 2.
namespace strake::comm {

struct NcclId {
  char bytes[128];
};
using NcclHandle = void*;  // ncclComm_t

enum NcclType : int { kNcclUint8 = 1 };  // everything is sent as bytes: sums are taken by us

struct NcclTable {
  const char* (*error_text)(int error);
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclId* id);
  int (*init_rank)(NcclHandle* comm, int ranks, NcclId id, int rank);
  int (*destroy)(NcclHandle comm);
  int (*abort)(NcclHandle comm);
  int (*async_error)(NcclHandle comm, int* error);
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* from, size_t count, int type, int peer, NcclHandle comm, void* stream);
  int (*recv)(void* to, size_t count, int type, int peer, NcclHandle comm, void* stream);
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, NcclHandle comm, void* stream);
};

// Error (kConfig) that says what is missing.
NcclTable open_nccl(const std::filesystem::path& path);

// The same for the process's one NCCL: libnccl.so.2, which libtorch's CUDA half has brought along if it was opened.
const NcclTable& nccl();

}  // namespace strake::comm
