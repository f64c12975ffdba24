#pragma once

#include <cstdint>

// Bytes of all CPU tensors of this process, from the moment of track_tensor_memory() on. What libraries and kernels
// allocate past ATen's allocator (matrix products' workspaces, datasets, files) is not in it. Thread-safe; costs two
// atomic additions per tensor. Large tensors are given huge pages, if the system has any.
namespace strake::tensors {

// Makes ATen's CPU allocator count; a second call does nothing. Call it before the first tensor is made: one that is
// older is not counted, and libraries may free it through the new allocator.
void track_tensor_memory();

int64_t tracked_bytes();
// The most that tracked_bytes() was since the start or the last reset; 0 if nothing is tracked.
int64_t peak_tracked_bytes();
void reset_peak_tracked_bytes();

// Counts memory that tensors have from elsewhere, or have no longer (less than 0), if tensors are tracked.
void count_other_memory(int64_t bytes);

// The most that this thread had allocated less what it had freed, since the last reset: of a rank that is a thread.
int64_t peak_tracked_bytes_of_thread();
// Begins to count from 0.
void reset_peak_tracked_bytes_of_thread();

}  // namespace strake::tensors
