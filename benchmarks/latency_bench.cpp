// The time from one text's token ids to its logits: latency_bench PRECISION FOLDER
// PRECISION is fp32, bf16 or int8; FOLDER holds roberta-base and test.parquet (benchmarks/workload.py). Scores the
// first 200 texts one after the other, after a first pass over them. Prints one JSON object: p50_ms and p99_ms, and as
// rate the texts a second at the median.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/data/table_reader.h"
#include "strake/inference/engine.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tokenizers/fast_encoder.h"

namespace strake {
namespace {

constexpr int64_t kTexts = 200;
constexpr int64_t kLongest = 128;

std::vector<std::vector<int32_t>> token_ids(const std::filesystem::path& folder) {
  tokenizers::FastEncoder encoder(tokenizers::Tokenizer::load(folder / "roberta-base"));
  data::TableReader reader({.paths = {folder / "test.parquet"}, .end_row = kTexts});
  std::vector<std::vector<int32_t>> texts;
  while (const auto table = reader.next()) {
    const data::TextColumn column = table->text("text");
    for (int64_t row = 0; row < table->num_rows(); ++row) {
      encoder.encode(column[row], std::nullopt, kLongest, texts.emplace_back());
    }
  }
  return texts;
}

inference::Precision precision_of(std::string_view name) {
  for (const auto precision : {inference::Precision::kFp32, inference::Precision::kBf16, inference::Precision::kInt8}) {
    if (name == inference::to_string(precision)) return precision;
  }
  fail(ErrorKind::kUsage, "precision {} is none of fp32, bf16 and int8", name);
}

void measure(std::string_view precision, const std::filesystem::path& folder) {
  const int threads = threads_per_rank(1);
  tensors::set_compute_threads(threads);
  inference::Engine engine(folder / "roberta-base", {.precision = precision_of(precision)},
                           {.threads = threads, .longest_sequence = kLongest});
  std::vector<float> logits(static_cast<size_t>(engine.config().num_labels()));
  std::vector<double> seconds;
  const auto texts = token_ids(folder);
  int64_t tokens = 0;
  double sum = 0;
  for (const bool is_timed : {false, true}) {
    for (const std::vector<int32_t>& ids : texts) {
      const std::vector<int64_t> offsets{0, std::ssize(ids)};
      const auto start = Clock::now();
      engine.score({.ids = ids, .offsets = offsets, .second_begin = {}}, logits);
      if (!is_timed) continue;
      seconds.push_back(seconds_since(start));
      sum += seconds.back();
      tokens += std::ssize(ids);
    }
  }
  std::ranges::sort(seconds);
  const double p50 = seconds[seconds.size() / 2];
  const double p99 = seconds[seconds.size() * 99 / 100];
  fmt::print("{{\"rate\": {}, \"tokens\": {}, \"seconds\": {}, \"p50_ms\": {}, \"p99_ms\": {}}}\n", 1 / p50, tokens,
             sum, 1e3 * p50, 1e3 * p99);
}

}  // namespace
}  // namespace strake

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: latency_bench fp32|bf16|int8 FOLDER\n");
    return 2;
  }
  try {
    strake::measure(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "latency_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
