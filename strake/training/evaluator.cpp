#include "strake/training/evaluator.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "strake/core/clock.h"
#include "strake/data/collate.h"
#include "strake/models/forward.h"
#include "strake/monitor/entity_metrics.h"
#include "strake/training/batch_shape.h"
#include "strake/training/plain_nan.h"

namespace strake::training {
namespace {

std::vector<int64_t> indices_by_length(const data::TokenDataset& dataset) {
  std::vector<int64_t> indices(dataset.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::ranges::stable_sort(indices, std::ranges::greater(), [&](int64_t i) { return dataset.length(i); });
  return indices;
}

at::Tensor labels_of_rows(const data::TokenDataset& dataset, int64_t begin, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), begin);
  return data::labels_of(dataset, rows);
}

double mean_loss(const models::SequenceClassifier& model, const at::Tensor& logits, const data::TokenDataset& dataset) {
  double sum = 0;
  for (int64_t begin = 0; begin < dataset.size(); begin += kRowsOfLoss) {
    const int64_t count = std::min(kRowsOfLoss, dataset.size() - begin);
    const at::Tensor labels = labels_of_rows(dataset, begin, count);
    sum += model.loss(logits.narrow(0, begin, count), labels, static_cast<double>(dataset.size())).item<double>();
  }
  return sum;
}

// Of a contiguous tensor on the CPU.
template <typename T>
std::span<const T> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

// Of each row and label whether the row has it, and whether it is given to it.
monitor::MultiLabelMetrics compare_labels(const at::Tensor& logits, const data::TokenDataset& dataset,
                                          int64_t num_labels) {
  std::vector<char> predicted;
  for (const float logit : values_of<float>(logits)) predicted.push_back(logit > 0 ? 1 : 0);
  std::vector<char> actual(predicted.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const int32_t label : dataset.classes(i)) actual[static_cast<size_t>(i * num_labels + label)] = 1;
  }
  return monitor::multi_label_metrics(predicted, actual, num_labels);
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

Evaluation finished(Evaluation result, Clock::time_point start) {
  result.loss = plain_nan(result.loss);
  for (auto& [name, value] : result.metrics) value = plain_nan(value);
  result.seconds = seconds_since(start);
  return result;
}

// Cuts sequences, the longest first, into batches.
std::vector<std::span<const int64_t>> cut_into_batches(std::span<const int64_t> indices,
                                                       const data::TokenDataset& dataset, const BatchLimit& limit) {
  const bool is_filled = limit.fill == BatchLimit::Fill::kToTokens;
  const int64_t most = is_filled ? limit.tokens - 1 : limit.tokens;
  std::vector<std::span<const int64_t>> batches;
  while (!indices.empty()) {
    size_t count = 1;
    int64_t tokens = dataset.length(indices.front());
    const auto fits = [&](int64_t sequence) {
      return std::cmp_less(count, limit.sequences) && tokens + dataset.length(sequence) <= most;
    };
    while (count < indices.size() && fits(indices[count])) tokens += dataset.length(indices[count++]);
    batches.push_back(indices.first(count));
    indices = indices.subspan(count);
  }
  return batches;
}

// Calls use(indices, output) for this rank's share of the batches.
template <typename Use>
void for_each_output(const EvaluationRequest& request, const Use& use) {
  const std::vector<int64_t> indices = indices_by_length(request.dataset);
  const auto batches = cut_into_batches(indices, request.dataset, request.batch);
  const auto ranks = static_cast<size_t>(request.comm.size());
  GatheredParameters source(request.parameters);
  for (size_t round = 0; round < batches.size(); round += ranks) {
    const size_t own = round + static_cast<size_t>(request.comm.rank());
    if (own >= batches.size()) {
      source.pass();
      continue;
    }
    tensors::PackedBatch batch = request.model.prepared(data::collate(request.dataset, batches[own]), std::nullopt);
    if (request.batch.fill == BatchLimit::Fill::kToTokens) batch = tensors::filled_up(batch, request.batch.tokens);
    batch = tensors::to_device(std::move(batch), request.parameters.device());
    use(batches[own], models::forward(request.model, source, batch).to(at::kCPU, at::kFloat).contiguous());
  }
}

// Of a model that gives each token some numbers: the losses of all sequences, each by itself, added up. Calls use(first
// token in the dataset, numbers) for this rank's share of the sequences. Collective.
template <typename Use>
double sum_of_losses(const EvaluationRequest& request, const Use& use) {
  const data::TokenDataset& dataset = request.dataset;
  at::Tensor losses = at::zeros({dataset.size()}, at::kDouble);
  auto* const loss = losses.mutable_data_ptr<double>();
  for_each_output(request, [&](std::span<const int64_t> share, const at::Tensor& outputs) {
    int64_t begin = 0;
    for (const int64_t i : share) {
      const at::Tensor of_sequence = outputs.narrow(0, begin, dataset.length(i));
      use(dataset.offsets()[static_cast<size_t>(i)], of_sequence);
      loss[i] = request.model.loss(of_sequence, data::labels_of(dataset, {&i, 1}), 1.0).template item<double>();
      begin += dataset.length(i);
    }
  });
  request.comm.all_reduce(losses);  // exact: each sequence was computed by one rank, the others have zero
  return std::accumulate(loss, loss + dataset.size(), 0.0);
}

}  // namespace

models::BatchShape largest_evaluation_batch(const models::Model& model, const data::TokenDataset& dataset,
                                            int64_t batch_size) {
  const std::vector<int64_t> indices = indices_by_length(dataset);
  const auto size = static_cast<size_t>(std::min(batch_size, dataset.size()));
  return shape_of(model, dataset, std::span(indices).first(size));
}

monitor::NamedValues compute_metrics(const models::SequenceClassifier& model, const at::Tensor& logits,
                                     const data::TokenDataset& dataset) {
  const int64_t num_labels = model.config().num_labels();
  const auto problem = model.config().problem();
  if (problem == models::ProblemType::kMultiLabelClassification) {
    return compare_labels(logits, dataset, num_labels).named_values();
  }
  const at::Tensor actual = labels_of_rows(dataset, 0, dataset.size());
  if (problem == models::ProblemType::kRegression) {
    return monitor::regression_metrics(values_of<double>(logits.squeeze(1).to(at::kDouble).contiguous()),
                                       values_of<double>(actual.to(at::kDouble)))
        .named_values();
  }
  return monitor::classification_metrics(values_of<int64_t>(logits.argmax(1)), values_of<int64_t>(actual), num_labels)
      .named_values();
}

Evaluation evaluate(const models::SequenceClassifier& model, ShardedParameters& parameters, comm::Comm& comm,
                    const data::TokenDataset& dataset, int64_t batch_size) {
  const auto start = Clock::now();
  Evaluation result{.logits = at::zeros({dataset.size(), model.config().num_labels()}), .sequences = dataset.size()};
  auto* rows = result.logits.mutable_data_ptr<float>();
  const int64_t width = result.logits.size(1);
  for_each_output({model, parameters, comm, dataset, {.sequences = batch_size}},
                  [&](std::span<const int64_t> share, const at::Tensor& logits) {
                    const auto* values = logits.const_data_ptr<float>();
                    for (size_t i = 0; i < share.size(); ++i) {
                      std::copy_n(values + static_cast<int64_t>(i) * width, width, rows + share[i] * width);
                    }
                  });
  at::Tensor flat = result.logits.view(-1);
  comm.all_reduce(flat);  // exact: each row was computed by one rank, the others have zero
  if (dataset.label_kind() != data::TokenLabelKind::kNone && dataset.size() > 0) {
    result.loss = mean_loss(model, result.logits, dataset);
    result.metrics = compute_metrics(model, result.logits, dataset);
  }
  return finished(std::move(result), start);
}

void for_each_sequence_nll(const EvaluationRequest& request, const SequenceNllUse& use) {
  for_each_output(request, [&](std::span<const int64_t> share, const at::Tensor& nll) {
    std::span<const float> values = values_of<float>(nll);
    for (const int64_t i : share) {
      const auto count = static_cast<size_t>(request.model.num_targets(request.dataset.length(i)));
      use(i, values.first(count));
      values = values.subspan(count);
    }
  });
}

Evaluation evaluate_language_model(const EvaluationRequest& request) {
  const auto start = Clock::now();
  const data::TokenDataset& dataset = request.dataset;
  at::Tensor sums = at::zeros({dataset.size()}, at::kDouble);
  auto* sum_of_sequence = sums.mutable_data_ptr<double>();
  for_each_sequence_nll(request, [&](int64_t i, std::span<const float> nll) {
    sum_of_sequence[i] = std::accumulate(nll.begin(), nll.end(), 0.0);
  });
  request.comm.all_reduce(sums);  // exact: each sequence was computed by one rank, the others have zero
  int64_t targets = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) targets += request.model.num_targets(dataset.length(i));
  const double total = std::accumulate(sum_of_sequence, sum_of_sequence + dataset.size(), 0.0);
  Evaluation result{.loss = total / static_cast<double>(targets), .sequences = dataset.size()};
  result.metrics = {{"perplexity", std::exp(result.loss)}};
  return finished(std::move(result), start);
}

Evaluation evaluate_token_classifier(const models::TokenClassifier& model, ShardedParameters& parameters,
                                     comm::Comm& comm, const data::TokenDataset& dataset, int64_t batch_size) {
  const auto start = Clock::now();
  at::Tensor predicted = at::zeros({dataset.total_tokens()});
  const double total = sum_of_losses({model, parameters, comm, dataset, {.sequences = batch_size}},
                                     [&](int64_t begin, const at::Tensor& of_sequence) {
                                       predicted.narrow(0, begin, of_sequence.size(0)).copy_(of_sequence.argmax(1));
                                     });
  comm.all_reduce(predicted);  // exact: each sequence was computed by one rank, the others have zero
  monitor::EntityCounter counter(model.config().labels);
  int64_t targets = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    std::vector<int32_t> actual, given;
    const std::span<const float> of_tokens =
        values_of<float>(predicted).subspan(static_cast<size_t>(dataset.offsets()[static_cast<size_t>(i)]));
    const std::span<const int32_t> classes = dataset.token_classes(i);
    for (size_t t = 0; t < classes.size(); ++t) {
      if (classes[t] == data::kNoClass) continue;
      actual.push_back(classes[t]);
      given.push_back(static_cast<int32_t>(of_tokens[t]));
    }
    counter.add({given, actual});
    targets += std::ssize(actual);
  }
  Evaluation result{.loss = total / static_cast<double>(targets), .sequences = dataset.size()};
  result.metrics = counter.metrics().named_values();
  return finished(std::move(result), start);
}

Evaluation evaluate_question_answerer(const models::QuestionAnswerer& model, ShardedParameters& parameters,
                                      comm::Comm& comm, const data::TokenDataset& dataset, int64_t batch_size) {
  const auto start = Clock::now();
  Evaluation result{.logits = at::zeros({dataset.total_tokens(), 2}), .sequences = dataset.size()};
  const double total = sum_of_losses({model, parameters, comm, dataset, {.sequences = batch_size}},
                                     [&](int64_t begin, const at::Tensor& of_sequence) {
                                       result.logits.narrow(0, begin, of_sequence.size(0)).copy_(of_sequence);
                                     });
  at::Tensor flat = result.logits.view(-1);
  comm.all_reduce(flat);  // exact: each sequence was computed by one rank, the others have zero
  result.loss = total / static_cast<double>(dataset.size());
  return finished(std::move(result), start);
}

void take_that_of_first(Evaluation& evaluation, comm::Comm& comm) {
  std::vector<double> values{evaluation.loss};
  for (const auto& [name, value] : evaluation.metrics) values.push_back(value);
  values = comm::all_gather_values(comm, values);
  evaluation.loss = values.front();
  for (size_t i = 0; i < evaluation.metrics.size(); ++i) evaluation.metrics[i].second = values[i + 1];
}

}  // namespace strake::training
