#include "strake/inference/engine.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/inference/device_pass.h"
#include "strake/models/gpus.h"

namespace strake::inference {
namespace {

// A thread of a team computes alone, whatever its kernels would do otherwise.
class AloneOnThread {
 public:
  AloneOnThread() : before_(num_threads()) { set_num_threads(1); }
  ~AloneOnThread() { set_num_threads(before_); }
  AloneOnThread(const AloneOnThread&) = delete;
  AloneOnThread& operator=(const AloneOnThread&) = delete;

 private:
  int before_;
};

// The first sequence that begins at or behind a token.
int64_t sequence_from(std::span<const int64_t> offsets, int64_t token) {
  return std::ranges::lower_bound(offsets, token) - offsets.begin();
}

// What the chunks of a call found, if anything: the sequence that comes first.
class FirstNotFinite {
 public:
  void add(int64_t begin, const std::optional<NotFinite>& found) {
    if (!found) return;
    const std::scoped_lock lock(mutex_);
    const int64_t sequence = begin + found->sequence;
    if (!first_ || sequence < first_->sequence) first_ = NotFinite{found->linear, sequence};
  }
  void require_none() const {
    if (first_) throw NotFiniteActivations(*first_);
  }

 private:
  std::mutex mutex_;
  std::optional<NotFinite> first_;
};

int64_t width_of(const Head& head, const models::EncoderConfig& config) {
  if (const auto* tokens = std::get_if<TokenHead>(&head)) return tokens->outputs;
  return std::holds_alternative<PooledHead>(head) ? config.hidden_size : config.num_labels();
}

// Opens what GPUs need, and makes this one the calling thread's.
at::Device take_gpu(int number) {
  const int count = models::open_gpus();
  require(number >= 0 && number < count, ErrorKind::kConfig, "GPU {}: this machine has {}", number, count);
  models::use_gpu(number);
  return {at::kCUDA, static_cast<at::DeviceIndex>(number)};
}

// A call's, of which there is one at a time.
class Turn {
 public:
  explicit Turn(std::atomic_flag& taken) : taken_(taken) {
    require(!taken_.test_and_set(std::memory_order_acquire), ErrorKind::kInternal,
            "two calls of one engine overlap: each thread needs an engine of its own");
  }
  ~Turn() { taken_.clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& taken_;
};

}  // namespace

NotFiniteActivations::NotFiniteActivations(const NotFinite& where)
    : Error(ErrorKind::kNumeric,
            fmt::format("sequence {}: the input of {} holds infinity or NaN, which int8 cannot represent: are the "
                        "weights sound? bf16 and fp32 do not quantize",
                        where.sequence, where.linear.text())),
      sequence_(where.sequence) {}

Engine::Engine(const std::filesystem::path& folder, const PrecisionPlan& plan, const Capacity& capacity, Head head,
               PackedWeights packed)
    : folder_(folder),
      config_(models::read_encoder_config(folder)),
      forms_(plan.forms),
      capacity_(capacity),
      head_(std::move(head)),
      width_(width_of(head_, config_)) {
  require(plan.precision == Precision::kInt8 || (plan.bf16_linears.empty() && forms_ == PrecisionPlan::Forms::kUsed),
          ErrorKind::kInternal, "a plan of int8 for an engine of {}", to_string(plan.precision));
  require(capacity.threads >= 1 && capacity.tokens_at_a_time >= 1 && capacity.longest_sequence >= 1 &&
              capacity.longest_sequence <= config_.max_sequence_length(),
          ErrorKind::kInternal, "engine for {} threads, {} tokens at a time and sequences of {}", capacity.threads,
          capacity.tokens_at_a_time, capacity.longest_sequence);
  const EncoderSource source{.folder = folder, .config = config_, .plan = plan, .head = head_, .packed = packed};
  if (capacity.gpu) {
    on_gpu_ = make_device_pass(source, {.device = take_gpu(*capacity.gpu),
                                        .tokens = std::max(capacity.tokens_at_a_time, capacity.longest_sequence),
                                        .longest_sequence = capacity.longest_sequence});
  } else {
    pass_ = make_encoder_pass(source, {.threads = capacity.threads,
                                       .tokens = capacity.tokens_at_a_time + capacity.longest_sequence - 1,
                                       .longest_sequence = capacity.longest_sequence});
  }
}

Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

void Engine::require_pass() const {
  require(pass_ != nullptr || on_gpu_ != nullptr, ErrorKind::kInternal, "this engine was moved to another object");
}

MemoryUse Engine::memory() const {
  require_pass();
  return on_gpu_ ? on_gpu_->memory() : pass_->memory();
}

void Engine::keep_in_bf16(std::span<const LinearName> linears) {
  require(forms_ == PrecisionPlan::Forms::kBoth, ErrorKind::kInternal, "this engine has one form of its weights");
  require_pass();
  pass_->keep_in_bf16(linears);
}

void Engine::check(const PackedTokens& tokens, std::span<const float> outputs) const {
  const auto offsets = tokens.offsets;
  require(!offsets.empty() && offsets.front() == 0 && offsets.back() == std::ssize(tokens.ids) &&
              (tokens.second_begin.empty() || std::ssize(tokens.second_begin) == tokens.num_sequences()),
          ErrorKind::kInternal, "packed tokens whose parts do not belong together");
  for (int64_t s = 0; s < tokens.num_sequences(); ++s) {
    const int64_t length = tokens.length(s);
    require(length >= 1, ErrorKind::kData, "sequence {} has no tokens", s);
    require(length <= capacity_.longest_sequence, ErrorKind::kData, "sequence {} has {} tokens; at most {} are scored",
            s, length, capacity_.longest_sequence);
    const int64_t second = tokens.second_begin.empty() ? length : tokens.second_begin[s];
    require(second >= 0 && (second >= length || config_.type_vocab_size != 1), ErrorKind::kData,
            "sequence {} has a second part at {}, and the model {} token types", s, second, config_.type_vocab_size);
  }
  for (const int32_t id : tokens.ids) {
    require(id >= 0 && id < config_.vocab_size, ErrorKind::kData, "token id {} is outside the model's vocabulary of {}",
            id, config_.vocab_size);
  }
  require(std::ssize(outputs) == num_outputs(tokens), ErrorKind::kInternal, "{} outputs for {} sequences",
          outputs.size(), tokens.num_sequences());
}

Engine::Cut Engine::cut_of(const PackedTokens& tokens) const {
  const int64_t total = std::ssize(tokens.ids);
  Cut cut{.chunks = (total + capacity_.tokens_at_a_time - 1) / capacity_.tokens_at_a_time};
  // A multiple of the threads, so that they finish together.
  const int64_t rounds = (cut.chunks + capacity_.threads - 1) / capacity_.threads;
  const Cut of_all{.chunks = rounds * capacity_.threads};
  int64_t longest = 0;
  for (int64_t i = 0; rounds == 1 && i < of_all.chunks; ++i) {
    longest = std::max(longest, of_all.chunk(tokens, i).num_tokens());
  }
  // With a chunk for each thread all wait for the longest one. Steps that threads do together take a little longer.
  constexpr double kEven = 0.8;
  cut.together = kEven * static_cast<double>(longest * capacity_.threads) > static_cast<double>(total);
  return cut.together ? cut : of_all;
}

PackedTokens Engine::Cut::chunk(const PackedTokens& tokens, int64_t i) const {
  const auto begins = tokens.offsets.first(tokens.offsets.size() - 1);
  const int64_t total = std::ssize(tokens.ids);
  const int64_t begin = sequence_from(begins, total * i / chunks);
  return tokens.slice(begin, sequence_from(begins, total * (i + 1) / chunks));
}

void Engine::score(const PackedTokens& tokens, std::span<float> outputs) {
  require_pass();
  const Turn turn(on_gpu_ ? on_gpu_->is_at_work : pass_->is_at_work);
  check(tokens, outputs);
  if (on_gpu_) {
    models::use_gpu(*capacity_.gpu);
    on_gpu_->score(tokens, outputs);
  } else {
    score_on_threads(tokens, outputs);
  }
}

void Engine::score_on_threads(const PackedTokens& tokens, std::span<float> outputs) {
  const Cut cut = cut_of(tokens);
  FirstNotFinite not_finite;
  const auto take = [&](int64_t i, int thread, const Share& share) {
    const PackedTokens chunk = cut.chunk(tokens, i);
    if (chunk.num_sequences() == 0) return;
    const int64_t begin = chunk.offsets.data() - tokens.offsets.data();
    float* const to = outputs.data() + width_ * (gives_tokens() ? tokens.offsets[begin] : begin);
    not_finite.add(begin, pass_->run(chunk, thread, share, to));
  };
  std::atomic<int64_t> next{0};
  Meeting meeting;
  // Nothing in here throws: what could has been checked.
  const auto work = [&](int thread, int size) {
    const AloneOnThread alone;
    if (cut.together && size == capacity_.threads) {
      for (int64_t i = 0; i < cut.chunks; ++i) take(i, thread, Share(thread, size, meeting));
    } else {
      for (int64_t i = next++; i < cut.chunks; i = next++) take(i, thread, Share());
    }
  };
  run_team(capacity_.threads, std::cref(work));  // by reference: a copy would be allocated
  if (pass_->have_weights_changed()) {
    fail(ErrorKind::kIo,
         "the packed weights in {} were written over while they were in use, and what was computed with them is not to "
         "be trusted: replace a model's folder by renaming, or do without packed weights (--packed_weights off)",
         folder_.string());
  }
  not_finite.require_none();
}

}  // namespace strake::inference
