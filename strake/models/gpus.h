#pragma once

namespace strake::models {

// GPUs of this machine, at least 1: opens libtorch's CUDA half and strake's kernels, once for the process. Error
// (kConfig) that says what is missing.
int open_gpus();

// Makes one of them the calling thread's current device, and its default stream the current one of libtorch, whose
// products our kernels then wait for. After open_gpus(). Errors: kConfig for a GPU of compute capability below 8.0,
// else as of kernels::cuda::check().
void use_gpu(int number);

// Whether NVIDIA's driver is there, with GPUs that this process may open: for hints, as nothing is opened.
bool may_have_gpus();

}  // namespace strake::models
