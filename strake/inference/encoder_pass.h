#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "strake/models/encoder/config.h"

namespace strake::inference {

// Sequences without padding, one after the other. Sequence s has the ids [offsets[s], offsets[s + 1]).
struct PackedTokens {
  std::span<const int32_t> ids;
  std::span<const int64_t> offsets;       // [num_sequences + 1], ascending
  std::span<const int32_t> second_begin;  // [num_sequences]: the token of the sequence from which on the type is 1; the
                                          // length or more: none. Empty: no sequence has such tokens

  int64_t num_sequences() const { return std::ssize(offsets) - 1; }
  int64_t num_tokens() const { return offsets.back() - offsets.front(); }
  int64_t length(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  // Sequences [begin, end), with the same ids and offsets into them.
  PackedTokens slice(int64_t begin, int64_t end) const {
    return {ids, offsets.subspan(begin, end - begin + 1),
            second_begin.empty() ? second_begin : second_begin.subspan(begin, end - begin)};
  }
};

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

// The forward pass of an encoder with a classification head, layer by layer on one thread's own buffers.
class EncoderPass {
 public:
  EncoderPass() = default;
  virtual ~EncoderPass() = default;
  EncoderPass(const EncoderPass&) = delete;
  EncoderPass& operator=(const EncoderPass&) = delete;

  // logits: [num_sequences, num_labels]. `tokens` has at least one sequence, is within the capacity, and all its
  // numbers are within their embedding tables. The calling thread must be set to one compute thread (core/threads.h).
  // Calls with different `thread` in [0, threads) may overlap. Does not allocate.
  virtual void run(const PackedTokens& tokens, int thread, float* logits) = 0;
  virtual MemoryUse memory() const = 0;
};

// T: float or kernels::BFloat16, the type of weights and activations. Errors (kConfig) as of models::load_block; a head
// must be there.
template <typename T>
std::unique_ptr<EncoderPass> make_encoder_pass(const std::filesystem::path& folder, const models::EncoderConfig& config,
                                               const PassCapacity& capacity);

}  // namespace strake::inference
