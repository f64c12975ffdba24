#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "strake/core/error.h"
#include "strake/inference/encoder_pass.h"
#include "strake/inference/head.h"
#include "strake/inference/precision.h"
#include "strake/models/encoder/config.h"

namespace strake::inference {

class DevicePass;

struct Capacity {
  int threads = 1;
  int64_t tokens_at_a_time = 1024;  // of each thread; counts the sequences that begin among them. A GPU's are rounded
                                    // up to multiples of 16384
  int64_t longest_sequence = 512;
  std::optional<int> gpu = {};  // the number of the one that computes, all tokens_at_a_time; absent: the processor
};

// kNumeric: activations of a sequence hold infinity or NaN, which int8 cannot represent.
class NotFiniteActivations : public Error {
 public:
  explicit NotFiniteActivations(const NotFinite& where);
  int64_t sequence() const { return sequence_; }  // of the call's

 private:
  int64_t sequence_;
};

// An encoder (BERT, RoBERTa, DistilBERT) with a head that scores sequences or their tokens, all of whose memory is
// taken at construction: weights once, in the layout of the matrix products, and for each thread the activations of the
// tokens it has at a time. A thread takes a chunk of sequences through all layers alone, so that threads never wait
// for each other within a call. Where that would leave threads without work, with one text, say, they take chunks
// through the layers together, step by step (share.h).
//
// A sequence's outputs depend on its tokens alone: not on its neighbours, its place, or the capacity, to the last bit.
// But a GPU's are not the processor's: it adds up in another order. There the engine has all in the GPU's memory, and a
// call's chunks follow each other (device_pass.h). Construction and score() make that GPU the calling thread's current
// one, and its default stream the current one.
//
// Calls of one Engine must not overlap, and an engine that was moved from can only be assigned to or destroyed:
// kInternal otherwise. score() allocates nothing but what a thread team needs on its first use, and for a GPU what goes
// there and comes back.
class Engine {
 public:
  // `folder`: config.json and the weights of an encoder with this head. Errors: kConfig if the folder holds something
  // else or the head is missing, or the plan names layers that are not there; kNumeric for weights that have no int8
  // form; kInternal for a capacity or a plan that makes no sense. Packed weights that cannot be kept are no error, and
  // a GPU has none. With a GPU also kConfig for int8, for heads that its kernels do not have, or if GPUs or what they
  // need are not there.
  Engine(const std::filesystem::path& folder, const PrecisionPlan& plan, const Capacity& capacity,
         Head head = SequenceHead{}, PackedWeights packed = PackedWeights::kOff);
  Engine(const std::filesystem::path& folder, Precision precision, const Capacity& capacity, Head head = SequenceHead{})
      : Engine(folder, PrecisionPlan{.precision = precision}, capacity, std::move(head)) {}

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  const models::EncoderConfig& config() const { return config_; }
  const Head& head() const { return head_; }
  MemoryUse memory() const;  // of the GPU, where it computes

  // Numbers that the head gives for a sequence, or, if gives_tokens(), for a token.
  int64_t width() const { return width_; }
  bool gives_tokens() const { return std::holds_alternative<TokenHead>(head_); }
  int64_t num_outputs(const PackedTokens& tokens) const {
    return width_ * (gives_tokens() ? tokens.num_tokens() : tokens.num_sequences());
  }

  // Replaces the plan's bf16_linears. kInternal unless the plan has both forms of the weights.
  void keep_in_bf16(std::span<const LinearName> linears);

  // outputs: num_outputs() of them: of logits, or of the vectors of a PooledHead. kData if a sequence is empty or
  // longer than the capacity's, or a number is outside its embedding table. NotFiniteActivations, with the layer,
  // for the first sequence that has any where they are to be quantized.
  void score(const PackedTokens& tokens, std::span<float> outputs);

 private:
  // How a call's sequences are cut.
  struct Cut {
    int64_t chunks = 0;
    bool together = false;  // threads take each chunk together

    PackedTokens chunk(const PackedTokens& tokens, int64_t i) const;  // about as many tokens in each
  };
  Cut cut_of(const PackedTokens& tokens) const;
  void check(const PackedTokens& tokens, std::span<const float> outputs) const;
  void score_on_threads(const PackedTokens& tokens, std::span<float> outputs);
  void require_pass() const;

  std::filesystem::path folder_;
  models::EncoderConfig config_;
  PrecisionPlan::Forms forms_;
  Capacity capacity_;
  Head head_;
  int64_t width_;
  // One of them, unless the engine was moved from.
  std::unique_ptr<EncoderPass> pass_;
  std::unique_ptr<DevicePass> on_gpu_;
};

}  // namespace strake::inference
