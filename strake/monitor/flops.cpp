#include "strake/monitor/flops.h"

namespace strake::monitor {

PackedWork& PackedWork::operator+=(const PackedWork& other) {
  tokens += other.tokens;
  sequences += other.sequences;
  squared_lengths += other.squared_lengths;
  return *this;
}

PackedWork packed_work(std::span<const int32_t> offsets) {
  PackedWork work;
  for (size_t i = 1; i < offsets.size(); ++i) {
    const double length = static_cast<double>(offsets[i]) - static_cast<double>(offsets[i - 1]);
    work += {.tokens = length, .sequences = 1, .squared_lengths = length * length};
  }
  return work;
}

namespace {

// Per token: query, key, value, output; feed-forward.
double projections(int64_t hidden_size, int64_t intermediate_size) {
  const auto hidden = static_cast<double>(hidden_size);
  return 2 * (4 * hidden * hidden + 2 * hidden * static_cast<double>(intermediate_size));
}

}  // namespace

double forward_flops(const EncoderShape& shape, const PackedWork& work) {
  const auto layers = static_cast<double>(shape.num_layers);
  const auto hidden = static_cast<double>(shape.hidden_size);
  const auto labels = static_cast<double>(shape.num_labels);
  const double attention = 4 * hidden;  // scores and their product with the values
  const double head = 2 * (hidden * hidden + hidden * labels);
  return layers * (projections(shape.hidden_size, shape.intermediate_size) * work.tokens +
                   attention * work.squared_lengths) +
         head * work.sequences;
}

double forward_flops(const DecoderShape& shape, const PackedWork& work) {
  const auto layers = static_cast<double>(shape.num_layers);
  const auto hidden = static_cast<double>(shape.hidden_size);
  const double attention = 4 * hidden * (work.squared_lengths + work.tokens) / 2;
  const double head = 2 * hidden * static_cast<double>(shape.vocab_size);
  return layers * (projections(shape.hidden_size, shape.intermediate_size) * work.tokens + attention) +
         head * (work.tokens - work.sequences);
}

double training_flops(const EncoderShape& shape, const PackedWork& work) { return 3 * forward_flops(shape, work); }

double training_flops(const DecoderShape& shape, const PackedWork& work) { return 3 * forward_flops(shape, work); }

}  // namespace strake::monitor
