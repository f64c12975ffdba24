#include "strake/data/collate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "strake/core/error.h"

namespace strake::data {

at::Tensor labels_of(const TokenDataset& dataset, std::span<const int64_t> indices) {
  const auto count = static_cast<int64_t>(indices.size());
  if (dataset.label_kind() == TokenLabelKind::kClass) {
    at::Tensor labels = at::empty({count}, at::kLong);
    std::ranges::transform(indices, labels.mutable_data_ptr<int64_t>(),
                           [&](int64_t i) { return int64_t{dataset.class_label(i)}; });
    return labels;
  }
  if (dataset.label_kind() == TokenLabelKind::kNumber) {
    at::Tensor labels = at::empty({count}, at::kFloat);
    std::ranges::transform(indices, labels.mutable_data_ptr<float>(),
                           [&](int64_t i) { return dataset.number_label(i); });
    return labels;
  }
  if (dataset.label_kind() == TokenLabelKind::kClasses) {
    require(dataset.num_classes() > 0, ErrorKind::kInternal, "a dataset does not say how many classes there are");
    at::Tensor labels = at::zeros({count, dataset.num_classes()}, at::kFloat);
    auto* row = labels.mutable_data_ptr<float>();
    for (const int64_t i : indices) {
      for (const int32_t label : dataset.classes(i)) row[label] = 1;
      row += dataset.num_classes();
    }
    return labels;
  }
  if (dataset.label_kind() == TokenLabelKind::kTokenClasses) {
    int64_t tokens = 0;
    for (const int64_t i : indices) tokens += dataset.length(i);
    at::Tensor labels = at::empty({tokens}, at::kLong);
    auto* next = labels.mutable_data_ptr<int64_t>();
    for (const int64_t i : indices) {
      for (const int32_t label : dataset.token_classes(i)) *next++ = label == kNoClass ? tensors::kIgnoredLabel : label;
    }
    return labels;
  }
  if (dataset.label_kind() == TokenLabelKind::kSpan) {
    at::Tensor labels = at::empty({count, 2}, at::kLong);
    auto* next = labels.mutable_data_ptr<int64_t>();
    int64_t begin = 0;
    for (const int64_t i : indices) {
      *next++ = begin + dataset.span(i).first;
      *next++ = begin + dataset.span(i).last;
      begin += dataset.length(i);
    }
    return labels;
  }
  return {};
}

tensors::PackedBatch collate(const TokenDataset& dataset, std::span<const int64_t> indices) {
  int64_t total = 0;
  for (const int64_t i : indices) total += dataset.length(i);
  require(total <= INT32_MAX, ErrorKind::kConfig,
          "a batch of {} tokens is too large: lower --per_device_train_batch_size", total);
  tensors::PackedBatch batch{.input_ids = at::empty({total}, at::kInt),
                             .token_type_ids = at::empty({total}, at::kInt),
                             .positions = at::empty({total}, at::kInt),
                             .token_rows = at::empty({total}, at::kLong),
                             .offsets = at::empty({static_cast<int64_t>(indices.size()) + 1}, at::kInt),
                             .labels = labels_of(dataset, indices)};
  auto* ids = batch.input_ids.mutable_data_ptr<int32_t>();
  auto* types = batch.token_type_ids.mutable_data_ptr<int32_t>();
  auto* positions = batch.positions.mutable_data_ptr<int32_t>();
  auto* rows = batch.token_rows.mutable_data_ptr<int64_t>();
  auto* offsets = batch.offsets.mutable_data_ptr<int32_t>();
  int64_t next = 0;
  *offsets++ = 0;
  for (const int64_t i : indices) {
    const auto tokens = dataset.tokens(i);
    const auto length = static_cast<int64_t>(tokens.size());
    std::ranges::copy(tokens, ids + next);
    std::fill_n(types + next, dataset.second_begin(i), 0);
    std::fill(types + next + dataset.second_begin(i), types + next + length, 1);
    std::iota(positions + next, positions + next + length, 0);
    std::fill_n(rows + next, length, i);
    next += length;
    *offsets++ = static_cast<int32_t>(next);
  }
  return batch;
}

}  // namespace strake::data
