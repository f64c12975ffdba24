#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "strake/inference/engine.h"
#include "strake/models/gpt2/config.h"
#include "strake/scoring/language_scorer.h"
#include "strake/scoring/score_config.h"

namespace strake::scoring {

// What flags and config.json say, before weights and tokenizer are loaded. Made once for a run, as it tells what it
// finds.
struct ScoringPlan {
  std::variant<models::EncoderConfig, models::Gpt2Config> config;
  TaskHead task;
  rows::TextOptions text;  // which columns are read; of a language model all but the start token

  const models::EncoderConfig& encoder() const { return std::get<models::EncoderConfig>(config); }
};
// A language model's where --task says causal-lm or, without it, config.json is that of one. Errors: those of
// choose_task() and language_task(); kUsage for columns of another task, and of a language model for other flags of
// encoders and --block_size above its positions.
ScoringPlan plan_scoring(const ScoreConfig& config);

// What the columns of the input, whose table `none` has no rows, add to a plan: whether words are labelled instead of
// texts. Errors: kData for columns that are missing or hold nothing to be scored; kUsage for flags of the other kind.
void look_at_columns(ScoringPlan& plan, const TaskFlags& flags, const data::Table& none);

// What --model_name_or_path names, ready to score on all cores or a GPU.
struct ScoringModel {
  std::variant<inference::Engine, LanguageScorer> computes;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  inference::PrecisionPlan plan;
  TaskHead task;
  rows::TextOptions text;
  double load_seconds = 0;
  std::string kernels;    // as of kernels_of()
  std::string precision;  // these two as in ScoreReport
  Json accuracy;

  inference::Engine& engine() { return std::get<inference::Engine>(computes); }
  const inference::Engine& engine() const { return std::get<inference::Engine>(computes); }
  inference::MemoryUse memory() const;
  rows::Places places() const;
};

// Compares the files of a checkpoint with its manifest first. Errors of an encoder also (kUsage): --max_seq_length is
// more than it has positions; --doc_stride is not less.
ScoringModel load_scoring_model(const ScoreConfig& config, const ScoringPlan& plan);
// Of an encoder, where that was done. `precision`: in the place of the one that the flags ask for.
ScoringModel load_verified_model(const ScoreConfig& config, const ScoringPlan& plan,
                                 const std::optional<inference::PrecisionPlan>& precision);

}  // namespace strake::scoring
