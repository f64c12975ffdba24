#include "strake/training/evaluator.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "strake/data/collate.h"
#include "strake/models/forward.h"

namespace strake::training {
namespace {

std::vector<int64_t> indices_by_length(const data::TokenDataset& dataset) {
  std::vector<int64_t> indices(dataset.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::ranges::stable_sort(indices, std::ranges::greater(), [&](int64_t i) { return dataset.length(i); });
  return indices;
}

at::Tensor all_labels(const data::TokenDataset& dataset) {
  const bool classes = dataset.label_kind() == data::TokenLabelKind::kClass;
  at::Tensor labels = at::zeros({dataset.size()}, classes ? at::kLong : at::kFloat);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (classes) {
      labels.mutable_data_ptr<int64_t>()[i] = dataset.class_label(i);
    } else {
      labels.mutable_data_ptr<float>()[i] = dataset.number_label(i);
    }
  }
  return labels;
}

class GatheredParameters final : public models::ParameterSource {
 public:
  explicit GatheredParameters(ShardedParameters& parameters) : parameters_(parameters) {}
  models::Parameters acquire(size_t i) override {
    models::Parameters values = parameters_.gather(i);
    parameters_.prefetch(i + 1);
    return values;
  }
  void release(size_t i) override { parameters_.release(i); }
  // In place of a forward pass on a rank that has no batch.
  void pass() {
    for (size_t i = 0; i < parameters_.num_blocks(); ++i) {
      acquire(i);
      release(i);
    }
  }

 private:
  ShardedParameters& parameters_;
};

}  // namespace

monitor::NamedValues compute_metrics(const models::SequenceClassifier& model, const at::Tensor& logits,
                                     const data::TokenDataset& dataset) {
  if (model.config().problem() == models::ProblemType::kRegression) {
    const at::Tensor predicted = logits.squeeze(1).to(at::kDouble).contiguous();
    const at::Tensor actual = all_labels(dataset).to(at::kDouble);
    return monitor::regression_metrics({predicted.const_data_ptr<double>(), static_cast<size_t>(predicted.numel())},
                                       {actual.const_data_ptr<double>(), static_cast<size_t>(actual.numel())})
        .named_values();
  }
  const at::Tensor predicted = logits.argmax(1);
  const at::Tensor actual = all_labels(dataset);
  return monitor::classification_metrics({predicted.const_data_ptr<int64_t>(), static_cast<size_t>(predicted.numel())},
                                         {actual.const_data_ptr<int64_t>(), static_cast<size_t>(actual.numel())},
                                         model.config().num_labels())
      .named_values();
}

Evaluation evaluate(const models::SequenceClassifier& model, ShardedParameters& parameters, comm::Comm& comm,
                    const data::TokenDataset& dataset, int64_t batch_size) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int64_t> indices = indices_by_length(dataset);
  Evaluation result{.logits = at::zeros({dataset.size(), model.config().num_labels()}), .sequences = dataset.size()};
  auto* rows = result.logits.mutable_data_ptr<float>();
  const int64_t width = result.logits.size(1);
  GatheredParameters source(parameters);
  for (int64_t round = 0; round < dataset.size(); round += comm.size() * batch_size) {
    const int64_t begin = round + comm.rank() * batch_size;
    if (begin >= dataset.size()) {
      source.pass();
      continue;
    }
    const int64_t count = std::min(batch_size, dataset.size() - begin);
    const auto share = std::span(indices).subspan(begin, count);
    const at::Tensor logits = models::forward(model, source, data::collate(dataset, share)).to(at::kFloat).contiguous();
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(logits.const_data_ptr<float>() + i * width, width, rows + share[i] * width);
    }
  }
  at::Tensor flat = result.logits.view(-1);
  comm.all_reduce(flat);  // exact: each row was computed by one rank, the others have zero
  if (dataset.label_kind() != data::TokenLabelKind::kNone && dataset.size() > 0) {
    result.loss = model.loss(result.logits, all_labels(dataset), static_cast<double>(dataset.size())).item<double>();
    result.metrics = compute_metrics(model, result.logits, dataset);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace strake::training
