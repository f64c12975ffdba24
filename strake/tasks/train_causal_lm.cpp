#include <algorithm>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/tasks/causal_lm_config.h"
#include "strake/tasks/document_pieces.h"
#include "strake/tasks/train_job.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

struct Setup {
  models::Gpt2Config model_config;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  int64_t block_size = 0;
  data::TokenDataset train;
  std::optional<data::TokenDataset> evaluation;
};

int64_t choose_block_size(const TrainConfig& config, const models::Gpt2Config& model_config) {
  constexpr int64_t kLongestByDefault = 1024;
  require(config.block_size <= model_config.max_positions, ErrorKind::kUsage,
          "--block_size {} is more than the model's {} positions", config.block_size, model_config.max_positions);
  return config.block_size > 0 ? config.block_size : std::min(kLongestByDefault, model_config.max_positions);
}

data::TokenDataset load_split(const TrainConfig& config, const std::vector<std::string>& paths, const Setup& setup,
                              int workers) {
  DocumentPieces pieces(paths.front(), setup.block_size);
  if (are_token_files(paths)) {
    pieces.append_token_files(paths, *setup.tokenizer);
  } else {
    pieces.append_texts(make_source(paths, config.text.encoding), setup.tokenizer, config.text.text_column, workers);
  }
  pieces.log_counts();
  data::TokenDataset dataset = pieces.build();
  require(dataset.size() > 0, ErrorKind::kData, "{} has no document of two tokens or more", paths.front());
  require_known_tokens(dataset, setup.model_config.vocab_size, paths.front());
  return dataset;
}

Setup load_setup(const TrainConfig& config, int workers) {
  Setup setup{.model_config = read_causal_lm_config(config),
              .tokenizer = tokenizers::Tokenizer::load(config.tokenizer_name.empty() ? config.model_name_or_path
                                                                                     : config.tokenizer_name),
              .train = data::TokenDatasetBuilder("").build(),
              .evaluation = std::nullopt};
  setup.block_size = choose_block_size(config, setup.model_config);
  setup.train = load_split(config, config.train_file, setup, workers);
  if (!config.validation_file.empty()) setup.evaluation = load_split(config, config.validation_file, setup, workers);
  return setup;
}

class CausalLmJob final : public TrainJob {
 public:
  CausalLmJob(const TrainConfig& config, int workers)
      : setup_(load_setup(config, workers)),
        model_(setup_.model_config),
        weights_(config.model_name_or_path),
        eval_batch_size_(config.training.per_device_eval_batch_size) {
    training::freeze_parameters(model_, config.training.frozen);
  }

  const models::Model& model() const override { return model_; }
  const data::TokenDataset& train_data() const override { return setup_.train; }
  const tokenizers::Tokenizer& tokenizer() const override { return *setup_.tokenizer; }
  std::string describe() const override {
    return fmt::format("gpt2 with {} parameters, {}; pieces of {} tokens at most", model_.num_parameters(),
                       weights_.empty() ? "from scratch" : "from " + weights_.string(), setup_.block_size);
  }
  fs::path weights() const override { return weights_; }
  bool has_evaluation() const override { return setup_.evaluation.has_value(); }
  training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const override {
    return training::evaluate_language_model(model_, parameters, comm, *setup_.evaluation, eval_batch_size_);
  }
  int64_t hidden_size() const override { return model_.config().hidden_size; }
  // Weights of the same shapes may belong to other heads, dropouts or activations.
  Json fingerprint() const override {
    return {{"block_size", setup_.block_size}, {"model_config", model_.config().document}};
  }
  std::string config_json() const override { return models::to_json_text(model_.config(), "float32"); }

 private:
  Setup setup_;
  models::Gpt2 model_;
  fs::path weights_;
  int64_t eval_batch_size_;
};

}  // namespace

std::unique_ptr<TrainJob> make_causal_lm_job(const TrainConfig& config, int workers) {
  return std::make_unique<CausalLmJob>(config, workers);
}

}  // namespace strake::tasks
