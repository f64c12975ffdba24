#include "strake/scoring/score_config.h"

#include <charconv>
#include <string_view>
#include <system_error>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/models/gpus.h"
#include "strake/tensors/cuda_libtorch.h"

namespace strake::scoring {
namespace {

constexpr int64_t kMostTokens = 1'048'576;  // a core's at a time: memory is taken for all of them
constexpr int64_t kTokensOfCore = 1024;
constexpr int64_t kTokensOfGpu = 65536;

}  // namespace

void ScoreConfig::validate() const {
  require(!model_name_or_path.empty(), ErrorKind::kUsage, "--model_name_or_path names no folder");
  require(!input.empty(), ErrorKind::kUsage, "--input names no file");
  precision.validate();
  require(packed_weights == "auto" || packed_weights == "off", ErrorKind::kUsage,
          "--packed_weights {} is neither auto nor off", printable(packed_weights));
  task.validate();
  require(max_seq_length.value_or(1) > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive",
          max_seq_length.value_or(0));
  const int64_t tokens = tokens_at_a_time();
  require(tokens > 0 && tokens <= kMostTokens, ErrorKind::kUsage,
          "--max_tokens_per_batch {} must be positive and at most {}", tokens, kMostTokens);
  require(!gpu() || precision.precision != "int8", ErrorKind::kUsage,
          "--precision int8 with --device {}: int8 is computed on processors only; GPUs have bf16", device);
}

std::optional<int> ScoreConfig::gpu() const {
  constexpr std::string_view kNumbered = "cuda:";
  constexpr int kMostGpus = 1024;
  if (device == "cpu") return std::nullopt;
  if (device == "cuda") return 0;
  int number = -1;
  if (device.starts_with(kNumbered)) {
    const char* const end = device.data() + device.size();
    const auto [last, error] = std::from_chars(device.data() + kNumbered.size(), end, number);
    if (error != std::errc() || last != end) number = -1;
  }
  require(number >= 0 && number < kMostGpus, ErrorKind::kUsage,
          "--device {} is neither cpu nor cuda, nor cuda: and a number", printable(device));
  return number;
}

int64_t ScoreConfig::tokens_at_a_time() const {
  return max_tokens_per_batch.value_or(gpu() ? kTokensOfGpu : kTokensOfCore);
}

std::string kernels_of(const ScoreConfig& config) {
  const std::optional<int> gpu = config.gpu();
  if (!gpu) return to_string(best_isa());
  try {
    const int count = models::open_gpus();
    require(*gpu < count, ErrorKind::kConfig, "this machine has {} GPU{}, from 0 on", count, count == 1 ? "" : "s");
    return "CUDA on " + tensors::gpu_name(*gpu);
  } catch (Error& error) {
    error.add_context("--device " + config.device);
    throw;
  }
}

void hint_at_gpus() {
  if (models::may_have_gpus()) log::info("computes on the processor; --device cuda: on this machine's GPU");
}

int tokenizing_threads(const ScoreConfig& config) {
  constexpr int kThreadsPerTokenizer = 16;
  const int threads = threads_per_rank(1);
  return config.gpu() ? threads : 1 + threads / kThreadsPerTokenizer;
}

}  // namespace strake::scoring
