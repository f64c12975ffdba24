#pragma once

namespace strake::tensors {

// Number of threads that ATen, its matrix libraries and strake's own kernels use when called from this thread. Call it
// once at the start of every thread that computes. Error (std::system_error) if the system does not give so many.
void set_compute_threads(int threads);

}  // namespace strake::tensors
