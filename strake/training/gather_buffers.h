#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace strake::training {

// Memory for parameters that are there only while a block is at work. A tensor without memory keeps its shape, and
// whatever views of it an autograd graph has saved see the memory that it is given next: FSDP's way to free and gather
// parameters between forward and backward. On a GPU too, for tensors of one device.
class GatherBuffers {
 public:
  // Leaves `tensor` (contiguous, with storage of its own) without memory.
  static void strip(const at::Tensor& tensor);
  // Gives a stripped tensor memory: some that was returned, else new. Whole pages, so that files can be read straight
  // into it. Contents are undefined.
  void attach(const at::Tensor& tensor);
  // Takes the memory back.
  void detach(const at::Tensor& tensor);
  // Frees what was taken back.
  void clear() { free_.clear(); }

 private:
  struct Buffer {
    size_t bytes;
    at::DataPtr data;
  };
  std::vector<Buffer> free_;
};

}  // namespace strake::training
