#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "strake/inference/encoder_pass.h"
#include "strake/inference/encoder_source.h"
#include "strake/inference/packed_tokens.h"

namespace strake::inference {

struct DeviceCapacity {
  at::Device device;
  int64_t tokens = 32768;  // at a time, rounded up to whole slabs; at least the longest sequence
  int64_t longest_sequence = 512;
  // Rows of a matrix product, of tokens and, behind the last layer's attention, of sequences. Bits depend on them.
  int64_t slab_of_tokens = 16384;
  int64_t slab_of_sequences = 1024;
};

// The forward pass of an encoder with its head on tensors of one device, of which GPUs are meant: strake's kernels, and
// libtorch's matrix products.
//
// A library chooses among kernels, which add up in different orders, by the number of rows. So all products have the
// same number of them, a slab: a sequence's outputs depend on its tokens alone, to the last bit, on GPUs of one kind.
class DevicePass {
 public:
  DevicePass() = default;
  virtual ~DevicePass() = default;
  DevicePass(const DevicePass&) = delete;
  DevicePass& operator=(const DevicePass&) = delete;

  // outputs: what the head gives, one sequence or token after the other. `tokens` is within the capacity, and all its
  // numbers are within their embedding tables. Waits for the device at the end only. Calls must not overlap.
  virtual void score(const PackedTokens& tokens, std::span<float> outputs) = 0;
  virtual MemoryUse memory() const = 0;

  std::atomic_flag is_at_work;  // for an engine's call
};

// Errors as of load_device_weights, and of kernels::require_attention_heads.
std::unique_ptr<DevicePass> make_device_pass(const EncoderSource& from, const DeviceCapacity& capacity);

}  // namespace strake::inference
