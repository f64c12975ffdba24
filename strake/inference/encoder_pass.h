#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "strake/inference/encoder_source.h"
#include "strake/inference/packed_tokens.h"
#include "strake/inference/share.h"

namespace strake::inference {

struct PassCapacity {
  int threads = 1;
  int64_t tokens = 512;  // of one run
  int64_t longest_sequence = 512;
};

// In bytes.
struct MemoryUse {
  int64_t weights = 0;
  int64_t activations = 0;  // of all threads
};

// Where a pass had to stop: a linear layer in int8 got infinity or NaN, which have no scale.
struct NotFinite {
  LinearName linear;
  int64_t sequence = 0;
};

// The forward pass of an encoder with its head, layer by layer.
class EncoderPass {
 public:
  EncoderPass() = default;
  virtual ~EncoderPass() = default;
  EncoderPass(const EncoderPass&) = delete;
  EncoderPass& operator=(const EncoderPass&) = delete;

  // outputs: what the head gives, one sequence or token after the other. `tokens` has at least one sequence, is within
  // the capacity, and all its numbers are within their embedding tables. The calling thread must be set to one compute
  // thread (core/threads.h). Calls with different `thread` in [0, threads) may overlap. Does not allocate. Where
  // NotFinite comes back, the outputs are undefined; without int8 none does.
  //
  // Threads 0, 1, ... that share the tokens call it with the same arguments but for `thread`, the number of their part
  // of the share, and get the same result, when all of it is there, with the bits of one thread.
  virtual std::optional<NotFinite> run(const PackedTokens& tokens, int thread, const Share& share, float* outputs) = 0;
  // Replaces the plan's bf16_linears; only for a plan with both forms, and not during a run.
  virtual void keep_in_bf16(std::span<const LinearName> linears) = 0;
  virtual MemoryUse memory() const = 0;
  // Somebody has written into the file that weights are views of: what was computed last may be of others.
  virtual bool have_weights_changed() const = 0;

  std::atomic_flag is_at_work;  // for an engine's call
};

// Errors as of load_encoder_weights.
std::unique_ptr<EncoderPass> make_encoder_pass(const EncoderSource& from, const PassCapacity& capacity);

}  // namespace strake::inference
