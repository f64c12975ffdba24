#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <span>

#include "strake/comm/comm.h"
#include "strake/data/token_dataset.h"
#include "strake/models/encoder/question_answerer.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_classifier.h"
#include "strake/monitor/evaluation_metrics.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training {

struct Evaluation {
  at::Tensor logits;  // fp32 [N, num_labels], in dataset order; of classifiers. Of answers [T, 2], all tokens'
  double loss = 0;    // mean over all targets; of classifiers only if the dataset has labels
  monitor::NamedValues metrics;
  int64_t sequences = 0;
  double seconds = 0;
};

// Rows whose loss is taken at once, from the logits of all of them.
inline constexpr int64_t kRowsOfLoss = 1024;

// Scores a dataset with the ranks of `comm` sharing the batches, and compares with its labels if it has any. Batches
// hold `batch_size` sequences of similar length; which rank computes one does not change its bits. Collective; every
// rank gets the result.
Evaluation evaluate(const models::SequenceClassifier& model, ShardedParameters& parameters, comm::Comm& comm,
                    const data::TokenDataset& dataset, int64_t batch_size);

// The same of a classifier of tokens, on a dataset with classes of tokens. Metrics are those of entities. Error (kData)
// if no token has a class.
Evaluation evaluate_token_classifier(const models::TokenClassifier& model, ShardedParameters& parameters,
                                     comm::Comm& comm, const data::TokenDataset& dataset, int64_t batch_size);

// The same of a model that finds answers, on a dataset of spans; what it finds is told by `logits` alone.
Evaluation evaluate_question_answerer(const models::QuestionAnswerer& model, ShardedParameters& parameters,
                                      comm::Comm& comm, const data::TokenDataset& dataset, int64_t batch_size);

// Gives all ranks the loss and the metrics that rank 0 has: with other kernels, which ranks may have, their last bits
// differ, and what is decided by them must be decided alike. Collective.
void take_that_of_first(Evaluation& evaluation, comm::Comm& comm);

// What sequences of similar length a batch holds at most, but at least one.
struct BatchLimit {
  enum class Fill { kNone, kToTokens };

  int64_t sequences = std::numeric_limits<int64_t>::max();
  int64_t tokens = std::numeric_limits<int64_t>::max();
  // kToTokens: batches of fewer are filled up to `tokens`, longer sequences to a multiple. A GPU's library chooses a
  // product's kernel, and so the order of sums, by the number of rows: with it a sequence's numbers do not depend on
  // the others of its batch there either.
  Fill fill = Fill::kNone;
};

// What is evaluated, the same on all ranks of `comm`. What comes out does not depend on their number or, on processors,
// the batches.
struct EvaluationRequest {
  const models::Model& model;
  ShardedParameters& parameters;
  comm::Comm& comm;
  const data::TokenDataset& dataset;
  BatchLimit batch;
};

// Of a language model, whose output is the negative log-likelihood of every target: the mean over all targets of the
// dataset. The metric is perplexity, exp(loss). Collective; every rank gets the result.
Evaluation evaluate_language_model(const EvaluationRequest& request);

// The negative log-likelihoods of one sequence's targets.
using SequenceNllUse = std::function<void(int64_t sequence, std::span<const float> nll)>;
// Calls `use` for each sequence that this rank computes, in any order. Collective.
void for_each_sequence_nll(const EvaluationRequest& request, const SequenceNllUse& use);

// The batch with most tokens that such an evaluation computes.
models::BatchShape largest_evaluation_batch(const models::Model& model, const data::TokenDataset& dataset,
                                            int64_t batch_size);

// Metrics of logits against the dataset's labels: those of the model's problem. Where a text may have several labels,
// it is given those with logits above 0.
monitor::NamedValues compute_metrics(const models::SequenceClassifier& model, const at::Tensor& logits,
                                     const data::TokenDataset& dataset);

}  // namespace strake::training
