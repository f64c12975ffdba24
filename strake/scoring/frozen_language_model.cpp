#include "strake/scoring/frozen_language_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/memory.h"
#include "strake/core/threads.h"
#include "strake/models/gpus.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/checkpoint_weights.h"
#include "strake/training/freezing.h"
#include "strake/training/memory_plan.h"
#include "strake/training/plain_nan.h"

namespace strake::scoring {
namespace {

training::TrainingOptions options_of(const ScoreConfig& config) {
  training::TrainingOptions options;
  options.bf16 = config.precision.asks_for_bf16();
  options.master = options.precision();  // nothing is trained: no copy in fp32
  options.gpu = config.gpu();
  return options;
}

// On a GPU the same for all runs, since a text's bits depend on it.
constexpr int64_t kTokensOnGpu = 16384;

training::BatchLimit batch_limit(const ScoreConfig& config) {
  if (config.gpu()) return {.tokens = kTokensOnGpu, .fill = training::BatchLimit::Fill::kToTokens};
  return {.tokens = config.tokens_at_a_time() * threads_per_rank(1)};
}

}  // namespace

void require_language_flags(const ScoreConfig& config) {
  require(!config.gpu() || !config.max_tokens_per_batch, ErrorKind::kUsage,
          "--max_tokens_per_batch {} is not of a language model on a GPU: there it does {} tokens at a time, since a "
          "text's bits depend on their number",
          config.max_tokens_per_batch.value_or(0), kTokensOnGpu);
  const std::string& precision = config.precision.precision;
  require(precision.empty() || precision == "fp32" || precision == "bf16", ErrorKind::kUsage,
          "--precision {}: language models compute in fp32 or bf16", precision);
  require(config.precision.file.empty(), ErrorKind::kUsage,
          "--precision_file is not of language models, which are not calibrated");
}

FrozenLanguageModel::FrozenLanguageModel(const ScoreConfig& config, std::unique_ptr<models::Model> model)
    : folder_(config.model_name_or_path),
      options_(options_of(config)),
      model_(std::move(model)),
      batch_(batch_limit(config)) {
  keep_freed_memory();
  tensors::track_tensor_memory();  // and what comes with it, as in training: huge pages
  tensors::set_compute_threads(threads_per_rank(1));
  if (options_.gpu) models::use_gpu(*options_.gpu);
  training::freeze_all(*model_);
  parameters_ = std::make_unique<training::ShardedParameters>(*model_, alone_, options_);
  const std::vector<std::string> lacking =
      training::load_checkpoint({.model = *model_, .folder = folder_}, *parameters_);
  require(lacking.empty(), ErrorKind::kConfig, "{} has no {}: these weights were never trained", folder_.string(),
          fmt::join(lacking, ", "));
}

inference::MemoryUse FrozenLanguageModel::memory(int64_t longest) const {
  const int64_t tokens = std::max(batch_.tokens, longest);
  const int64_t sequences = tokens / longest;
  const models::BatchShape batch{.tokens = tokens,
                                 .sequences = sequences,
                                 .longest = longest,
                                 .targets = sequences * model_->num_targets(longest)};
  const training::EvaluationMemory memory = training::plan_evaluation_memory(
      {.model = *model_,
       .options = options_,
       .batch = {},
       .evaluation = batch,
       .device = options_.gpu ? models::PlannedDevice::kGpu : models::PlannedDevice::kProcessor});
  return {.weights = memory.weights, .activations = memory.activations};
}

training::EvaluationRequest FrozenLanguageModel::request(const data::TokenDataset& sequences) {
  return {*model_, *parameters_, alone_, sequences, batch_};
}

training::Evaluation FrozenLanguageModel::evaluate(const data::TokenDataset& sequences, const std::string& source) {
  training::Evaluation result = training::evaluate_language_model(request(sequences));
  if (!std::isfinite(result.loss)) refuse_loss(result.loss, source);
  return result;
}

void FrozenLanguageModel::refuse_loss(double loss, const std::string& where) const {
  fail(ErrorKind::kNumeric,
       "{}: the loss is {}, not a finite number: are the weights of {} sound? In bf16, try --precision fp32", where,
       training::plain_nan(loss), folder_.string());
}

}  // namespace strake::scoring
