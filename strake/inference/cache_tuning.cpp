#include "strake/inference/cache_tuning.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/kernels/bfloat16.h"

namespace strake::inference {
namespace {

using kernels::CacheBlocks;

constexpr int64_t kRows = 384;                              // of the measured products
constexpr int kTurns = 5;                                   // of each candidate
constexpr double kClearly = 0.97;                           // of the first one's time
constexpr std::array<int64_t, 3> kRowsKiB{96, 512, 1024};   // beside what kernels do by themselves: 256 or 288
constexpr std::array<int64_t, 2> kColumns{768, 1'000'000};  // beside 2304
constexpr int64_t kMostBytes = int64_t{64} << 20;           // that a file may ask for
constexpr int64_t kMostColumns = 1'000'000;

// kRows rows of activations as an encoder's pass keeps them. Not of zeros, which are quantized in less time.
template <typename T>
struct Activations {
  explicit Activations(int64_t columns)
      : stride(kernels::row_stride<T>(columns)),
        memory(kRows * stride * static_cast<int64_t>(sizeof(T)) / static_cast<int64_t>(sizeof(float))) {
    for (int64_t i = 0; i < kRows * stride; ++i) data()[i] = kernels::from_float<T>(static_cast<float>(i % 251 - 125));
  }
  T* data() { return reinterpret_cast<T*>(memory.data()); }

  int64_t stride;
  kernels::AlignedFloats memory;
};

// Products of kRows rows by one weight.
template <typename T>
class PlainProduct {
 public:
  explicit PlainProduct(const kernels::PackedMatrix<T>& weight)
      : weight_(weight), a_(weight.depth()), c_(weight.columns()) {}

  double seconds(const CacheBlocks& blocks) {
    const kernels::PackedMatrix<T> weight = weight_.in_blocks(blocks);
    kernels::AlignedFloats scratch(kernels::matmul_scratch<T, T>(kRows, weight));
    const auto start = Clock::now();
    kernels::matmul_on_thread<T, T>({.rows = kRows,
                                     .columns = weight.columns(),
                                     .depth = weight.depth(),
                                     .a = {a_.data(), a_.stride, kernels::Order::kRows},
                                     .b = {},
                                     .result = {.c = c_.data(), .stride = c_.stride}},
                                    weight, scratch.data());
    return seconds_since(start);
  }

 private:
  const kernels::PackedMatrix<T>& weight_;
  Activations<T> a_, c_;
};

class QuantizedProduct {
 public:
  explicit QuantizedProduct(const kernels::QuantizedMatrix& weight)
      : weight_(weight), a_(weight.depth()), c_(weight.columns()) {}

  double seconds(const CacheBlocks& blocks) {
    const kernels::QuantizedMatrix weight = weight_.in_blocks(blocks);
    kernels::AlignedFloats scratch(kernels::int8_matmul_scratch(kRows, weight));
    const auto start = Clock::now();
    kernels::int8_matmul_on_thread<kernels::BFloat16>(
        {.rows = kRows, .a = a_.data(), .a_stride = a_.stride, .c = c_.data(), .c_stride = c_.stride}, weight,
        scratch.data());
    return seconds_since(start);
  }

 private:
  const kernels::QuantizedMatrix& weight_;
  Activations<kernels::BFloat16> a_, c_;
};

template <class Product>
CacheBlocks best_of(Product& product, const std::vector<CacheBlocks>& candidates) {
  return candidates[fastest(candidates.size(), [&](size_t i) { return product.seconds(candidates[i]); })];
}

template <class Product>
CacheBlocks best_rows(Product& product) {
  product.seconds({});  // touches its memory
  std::vector<CacheBlocks> candidates{{}};
  for (const int64_t kib : kRowsKiB) candidates.push_back({.rows_bytes = kib << 10});
  return best_of(product, candidates);
}

std::string processor() { return fmt::format("{} {:08x}", cpu_features().brand, cpu_features().signature); }

// Takes a number and the character behind it off the text.
std::optional<int64_t> take_number(std::string_view& text, char end, int64_t most) {
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(rest - text.data());
  const bool ok = error == std::errc() && number >= 0 && number <= most && length < text.size() && text[length] == end;
  if (!ok) return std::nullopt;
  text.remove_prefix(length + 1);
  return number;
}

template <typename Forms, typename Visit>
void for_each_blocks(Forms& blocks, const Visit& visit) {
  for (auto* form : {&blocks.plain, &blocks.quantized}) {
    for (auto& of_linear : *form) visit(of_linear);
  }
}

}  // namespace

size_t fastest(size_t candidates, const std::function<double(size_t)>& seconds) {
  std::vector<double> least(candidates, std::numeric_limits<double>::infinity());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < candidates; ++i) least[i] = std::min(least[i], seconds(i));
  }
  const auto best = static_cast<size_t>(std::ranges::min_element(least) - least.begin());
  return least[best] < kClearly * least[0] ? best : 0;
}

template <typename T>
CacheBlocks measure_blocks(const kernels::PackedMatrix<T>& weight) {
  PlainProduct<T> product(weight);
  std::vector<CacheBlocks> candidates{best_rows(product)};
  for (const int64_t columns : kColumns) candidates.push_back({candidates[0].rows_bytes, columns});
  return best_of(product, candidates);
}

CacheBlocks measure_blocks(const kernels::QuantizedMatrix& weight) {
  QuantizedProduct product(weight);
  return best_rows(product);
}

template <typename T>
LayerBlocks measure_blocks(const EncoderWeights<T>& weights) {
  LayerBlocks blocks;
  for (size_t i = 0; i < kLinears; ++i) {
    const auto first_with = [&](auto form) {
      return std::ranges::find_if(weights.layers,
                                  [&](const auto& layer) { return (layer.linears[i].*form).has_value(); });
    };
    const auto plain = first_with(&LayerLinear<T>::plain);
    if (plain != weights.layers.end()) {
      blocks.plain[i] = measure_blocks(plain->linears[i].plain->weight);
    }
    const auto quantized = first_with(&LayerLinear<T>::quantized);
    if (quantized != weights.layers.end()) {
      blocks.quantized[i] = measure_blocks(quantized->linears[i].quantized->weight);
    }
  }
  return blocks;
}

template <typename T>
void use_blocks(const LayerBlocks& blocks, EncoderWeights<T>& weights) {
  for (LayerWeights<T>& layer : weights.layers) {
    for (size_t i = 0; i < kLinears; ++i) {
      LayerLinear<T>& linear = layer.linears[i];
      if (linear.plain) linear.plain->weight = linear.plain->weight.in_blocks(blocks.plain[i]);
      if (linear.quantized) linear.quantized->weight = linear.quantized->weight.in_blocks(blocks.quantized[i]);
    }
  }
}

std::string text_of(const LayerBlocks& blocks) {
  std::string text = processor() + ":";
  for_each_blocks(blocks, [&](const CacheBlocks& b) { text += fmt::format("{}x{};", b.rows_bytes, b.columns); });
  return text;
}

std::optional<LayerBlocks> parse_blocks(std::string_view text) {
  const std::string begin = processor() + ":";
  if (!text.starts_with(begin)) return std::nullopt;
  text.remove_prefix(begin.size());
  LayerBlocks blocks;
  bool ok = true;
  for_each_blocks(blocks, [&](CacheBlocks& b) {
    const auto bytes = take_number(text, 'x', kMostBytes);
    const auto columns = take_number(text, ';', kMostColumns);
    ok = ok && bytes && columns;
    if (ok) b = {.rows_bytes = *bytes, .columns = *columns};
  });
  return ok && text.empty() ? std::optional(blocks) : std::nullopt;
}

template CacheBlocks measure_blocks(const kernels::PackedMatrix<float>&);
template CacheBlocks measure_blocks(const kernels::PackedMatrix<kernels::BFloat16>&);
template LayerBlocks measure_blocks(const EncoderWeights<float>&);
template LayerBlocks measure_blocks(const EncoderWeights<kernels::BFloat16>&);
template void use_blocks(const LayerBlocks&, EncoderWeights<float>&);
template void use_blocks(const LayerBlocks&, EncoderWeights<kernels::BFloat16>&);

}  // namespace strake::inference
