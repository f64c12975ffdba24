#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "strake/inference/encoder_pass.h"
#include "strake/models/encoder/config.h"

namespace strake::inference {

enum class Precision { kFp32, kBf16 };

struct Capacity {
  int threads = 1;
  int64_t tokens_at_a_time = 1024;  // of each thread; counts the sequences that begin among them
  int64_t longest_sequence = 512;
};

// A fine-tuned classifier or regression model (BERT, RoBERTa, DistilBERT) that scores sequences, all of whose memory is
// taken at construction: weights once, in the layout of the matrix products, and for each thread the activations of the
// tokens it has at a time. A thread takes a chunk of sequences through all layers alone, so that threads never wait
// for each other within a call.
//
// A sequence's logits depend on its tokens alone: not on its neighbours, its place, or the capacity, to the last bit.
//
// Calls of one Engine must not overlap. score() allocates nothing but what a thread team needs on its first use.
class Engine {
 public:
  // `folder`: config.json and the weights of a sequence classifier. Errors: kConfig if the folder holds something else
  // or the head is missing; kInternal for a capacity that makes no sense.
  Engine(const std::filesystem::path& folder, Precision precision, const Capacity& capacity);

  const models::EncoderConfig& config() const { return config_; }
  MemoryUse memory() const { return pass_->memory(); }

  // logits: [num_sequences, num_labels]. kData if a sequence is empty or longer than the capacity's, or a number is
  // outside its embedding table.
  void score(const PackedTokens& tokens, std::span<float> logits);

 private:
  void check(const PackedTokens& tokens) const;

  models::EncoderConfig config_;
  Capacity capacity_;
  std::unique_ptr<EncoderPass> pass_;
};

}  // namespace strake::inference
