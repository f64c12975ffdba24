#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "strake/comm/comm.h"
#include "strake/data/token_dataset.h"
#include "strake/inference/encoder_pass.h"
#include "strake/models/model.h"
#include "strake/scoring/score_config.h"
#include "strake/training/evaluator.h"
#include "strake/training/sharded_parameters.h"

namespace strake::scoring {

// Error (kUsage) for another --precision than such a model computes in, and for other flags that it cannot follow.
void require_language_flags(const ScoreConfig& config);

// A language model with all weights of its folder, none of which is trained. It computes as an evaluation in training
// does, bit for bit, on all cores or a GPU. A sequence's numbers depend on its tokens alone, not on what is computed
// beside it.
class FrozenLanguageModel {
 public:
  // Errors: kConfig for a folder that lacks weights, or a GPU that is not there.
  FrozenLanguageModel(const ScoreConfig& config, std::unique_ptr<models::Model> model);
  FrozenLanguageModel(const FrozenLanguageModel&) = delete;
  FrozenLanguageModel& operator=(const FrozenLanguageModel&) = delete;

  // With sequences of at most `longest` tokens; of the GPU, where it computes.
  inference::MemoryUse memory(int64_t longest) const;
  // What the functions of training/evaluator.h take to compute these.
  training::EvaluationRequest request(const data::TokenDataset& sequences);
  // Over all targets. kNumeric, naming `source`, for a loss that is not finite.
  training::Evaluation evaluate(const data::TokenDataset& sequences, const std::string& source);
  [[noreturn]] void refuse_loss(double loss, const std::string& where) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  training::TrainingOptions options_;
  comm::SelfComm alone_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<training::ShardedParameters> parameters_;
  training::BatchLimit batch_;
};

}  // namespace strake::scoring
