#include "strake/tasks/language_scorer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/core/error.h"
#include "strake/core/memory.h"
#include "strake/core/threads.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/gpus.h"
#include "strake/tasks/checkpoint_weights.h"
#include "strake/tasks/train_job.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/freezing.h"
#include "strake/training/memory_plan.h"
#include "strake/training/plain_nan.h"
#include "strake/training/sharded_parameters.h"

namespace strake::tasks {
namespace {

constexpr size_t kFewestTokens = 2;  // of a piece that has a target

training::TrainingOptions options_of(const ScoreConfig& config) {
  training::TrainingOptions options;
  options.bf16 = config.precision.asks_for_bf16();
  options.master = options.precision();  // nothing is trained: no copy in fp32
  options.gpu = config.gpu();
  return options;
}

models::Gpt2 frozen_model(models::Gpt2Config config) {
  models::Gpt2 model(std::move(config), /*label_smoothing=*/0.0);
  training::freeze_all(model);
  return model;
}

// On a GPU the same for all runs, since a text's bits depend on it.
constexpr int64_t kTokensOnGpu = 16384;

training::BatchLimit batch_limit(const ScoreConfig& config) {
  if (config.gpu()) return {.tokens = kTokensOnGpu, .fill = training::BatchLimit::Fill::kToTokens};
  return {.tokens = config.tokens_at_a_time() * threads_per_rank(1)};
}

// The pieces of some rows that have targets.
struct Pieces {
  data::TokenDataset dataset;
  std::vector<int64_t> rows;    // of each piece, from the first one on
  std::vector<size_t> skipped;  // of each piece: its first targets, which the piece before has predicted, too
};

Pieces pieces_of(const EncodedRows& rows, int64_t begin, int64_t end, int64_t shared) {
  data::TokenDatasetBuilder builder(rows.table.where(begin));
  std::vector<int64_t> rows_of_pieces;
  std::vector<size_t> skipped;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = rows.first_sequence(row); i < rows.first_sequence(row + 1); ++i) {
      const auto length = static_cast<size_t>(rows.offsets[i + 1] - rows.offsets[i]);
      if (length < kFewestTokens) continue;
      builder.append({.ids = std::span(rows.ids).subspan(rows.offsets[i], length), .row = i});
      rows_of_pieces.push_back(row - begin);
      skipped.push_back(i > rows.first_sequence(row) && shared > 0 ? static_cast<size_t>(shared) - 1 : 0);
    }
  }
  return {.dataset = builder.build(), .rows = std::move(rows_of_pieces), .skipped = std::move(skipped)};
}

struct Sum {
  double nll = 0;
  int64_t targets = 0;

  void add(const Sum& other) {
    nll += other.nll;
    targets += other.targets;
  }
  TextLoss mean() const {
    if (targets == 0) return {};
    return {.loss = static_cast<float>(nll / static_cast<double>(targets)),
            .predicted_tokens = static_cast<int32_t>(targets)};
  }
};

[[noreturn]] void refuse_loss(double loss, const std::string& where, const std::filesystem::path& folder) {
  fail(ErrorKind::kNumeric,
       "{}: the loss is {}, not a finite number: are the weights of {} sound? In bf16, try --precision fp32", where,
       training::plain_nan(loss), folder.string());
}

}  // namespace

struct LanguageScorer::State {
  State(const ScoreConfig& config, models::Gpt2Config model_config, const TextOptions& text)
      : folder(config.model_name_or_path),
        options(options_of(config)),
        model(frozen_model(std::move(model_config))),
        parameters(model, alone, options),
        batch(batch_limit(config)),
        block_size(text.max_seq_length),
        shared(text.doc_stride.value_or(0)) {
    const std::vector<std::string> lacking = load_checkpoint({.model = model, .folder = folder}, parameters);
    require(lacking.empty(), ErrorKind::kConfig, "{} has no {}: these weights were never trained", folder.string(),
            fmt::join(lacking, ", "));
  }

  std::vector<Sum> sums_of(const Pieces& pieces) {
    std::vector<Sum> sums(pieces.rows.size());
    training::for_each_sequence_nll(
        {model, parameters, alone, pieces.dataset, batch}, [&](int64_t i, std::span<const float> nll) {
          const auto counted = nll.subspan(pieces.skipped[static_cast<size_t>(i)]);
          sums[static_cast<size_t>(i)] = {.nll = std::accumulate(counted.begin(), counted.end(), 0.0),
                                          .targets = std::ssize(counted)};
        });
    return sums;
  }

  std::filesystem::path folder;
  training::TrainingOptions options;
  comm::SelfComm alone;
  models::Gpt2 model;
  training::ShardedParameters parameters;
  training::BatchLimit batch;
  int64_t block_size;
  int64_t shared;  // tokens of the piece before
};

LanguageScorer::LanguageScorer(const ScoreConfig& config, models::Gpt2Config model, const TextOptions& text) {
  keep_freed_memory();
  tensors::track_tensor_memory();  // and what comes with it, as in training: huge pages
  tensors::set_compute_threads(threads_per_rank(1));
  if (const auto gpu = config.gpu()) models::use_gpu(*gpu);
  state_ = std::make_unique<State>(config, std::move(model), text);
}
LanguageScorer::LanguageScorer(LanguageScorer&&) noexcept = default;
LanguageScorer::~LanguageScorer() = default;

const models::Gpt2Config& LanguageScorer::config() const { return state_->model.config(); }

inference::MemoryUse LanguageScorer::memory() const {
  const int64_t tokens = std::max(state_->batch.tokens, state_->block_size);
  const models::BatchShape batch{
      .tokens = tokens, .sequences = tokens / state_->block_size, .longest = state_->block_size};
  const training::EvaluationMemory memory = training::plan_evaluation_memory(
      {.model = state_->model,
       .options = state_->options,
       .batch = {},
       .evaluation = batch,
       .device = state_->options.gpu ? models::PlannedDevice::kGpu : models::PlannedDevice::kProcessor});
  return {.weights = memory.weights, .activations = memory.activations};
}

at::Tensor LanguageScorer::losses(const EncodedRows& rows, int64_t begin, int64_t end) {
  const Pieces pieces = pieces_of(rows, begin, end, state_->shared);
  require_known_tokens(pieces.dataset, config().vocab_size, state_->folder.string());
  const std::vector<Sum> of_pieces = state_->sums_of(pieces);
  std::vector<Sum> of_rows(static_cast<size_t>(end - begin));
  for (size_t i = 0; i < of_pieces.size(); ++i) of_rows[static_cast<size_t>(pieces.rows[i])].add(of_pieces[i]);
  const at::Tensor numbers = at::empty({end - begin, kNumbersPerLoss}, at::kFloat);
  for (int64_t row = 0; row < end - begin; ++row) {
    const Sum& sum = of_rows[static_cast<size_t>(row)];
    if (!std::isfinite(sum.nll)) refuse_loss(sum.nll, rows.table.where(begin + row), state_->folder);
    put_loss(sum.mean(), numbers.mutable_data_ptr<float>() + row * kNumbersPerLoss);
  }
  return numbers;
}

training::Evaluation LanguageScorer::evaluate(const data::TokenDataset& pieces, const std::string& source) {
  training::Evaluation result =
      training::evaluate_language_model({state_->model, state_->parameters, state_->alone, pieces, state_->batch});
  if (!std::isfinite(result.loss)) refuse_loss(result.loss, source, state_->folder);
  return result;
}

}  // namespace strake::tasks
