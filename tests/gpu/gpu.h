#pragma once

namespace strake {

// True on a machine with an NVIDIA driver, or if STRAKE_REQUIRE_GPU is set: then whatever is missing is a failure, not
// a reason to skip.
bool has_gpu();

// Opens the libraries and makes GPU 0 the calling thread's. Returns the number of GPUs.
int open_gpu();

// As many ranks as there are GPUs, two at least where ranks may share one.
int num_ranks_on_gpus();

}  // namespace strake
