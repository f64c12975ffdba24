// Ids per second of FastEncoder (one thread) over the lines of a text file, with an empty word cache in every
// iteration. Usage: tokenizers_bench TOKENIZER LINES.txt [Google Benchmark's flags]; TOKENIZER is what Tokenizer::load
// takes.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "strake/tokenizers/fast_encoder.h"

namespace {

using strake::tokenizers::FastEncoder;
using strake::tokenizers::Tokenizer;

void encode_lines(benchmark::State& state, const std::shared_ptr<const Tokenizer>& tokenizer,
                  const std::vector<std::string>& lines) {
  int64_t bytes = 0, tokens = 0;
  for (auto _ : state) {
    FastEncoder encoder(tokenizer);
    std::vector<int32_t> ids;
    for (const std::string& line : lines) {
      encoder.encode(line, std::nullopt, std::nullopt, ids);
      bytes += static_cast<int64_t>(line.size());
    }
    tokens += static_cast<int64_t>(ids.size());
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(bytes);
  state.SetItemsProcessed(tokens);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizers_bench TOKENIZER LINES.txt\n");
    return 2;
  }
  const auto tokenizer = Tokenizer::load(argv[1]);
  std::vector<std::string> lines;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  benchmark::RegisterBenchmark("fast_encoder_cold",
                               [&](benchmark::State& state) { encode_lines(state, tokenizer, lines); });
  benchmark::RunSpecifiedBenchmarks();
}
