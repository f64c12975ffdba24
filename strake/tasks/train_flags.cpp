// What strake train refuses of its flags, before and after the data is known.
#include <algorithm>
#include <functional>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/models/encoder/family.h"
#include "strake/tasks/accelerate_environment.h"
#include "strake/tasks/masked_lm_config.h"
#include "strake/tasks/run_folder.h"
#include "strake/tasks/sharding_flags.h"
#include "strake/tasks/splits.h"
#include "strake/tasks/trackers.h"
#include "strake/tasks/train_job.h"

namespace strake::tasks {

void require_known_metric(const training::TrainingOptions& options, const std::string& what,
                          const std::vector<std::string>& metrics) {
  std::vector<std::string> known{"loss"};
  known.insert(known.end(), metrics.begin(), metrics.end());
  const std::string wanted = options.best_metric_name().substr(std::string_view("eval_").size());
  require(std::ranges::find(known, wanted) != known.end(), ErrorKind::kUsage,
          "--metric_for_best_model {} is none of the metrics of {}: {}{}", printable(options.metric_for_best_model),
          what, fmt::join(known, ", "), did_you_mean(wanted, known));
}

void require_known_ranks(const TrainConfig& config) {
  require(config.ranks >= 1 && config.ranks <= 4096, ErrorKind::kUsage, "--ranks {} is not in [1, 4096]", config.ranks);
}

void require_known_model_type(const TrainConfig& config) {
  if (config.model_type.empty()) return;
  std::vector<std::string> known{"gpt2"};
  if (config.train_task() == TrainTask::kMaskedLm) {
    known.clear();
    for (const models::EncoderFamily& family : models::encoder_families()) known.emplace_back(family.model_type);
  }
  require(std::ranges::find(known, config.model_type) != known.end(), ErrorKind::kUsage,
          "--model_type {}: --task {} has {}{}", printable(config.model_type), config.task, fmt::join(known, ", "),
          did_you_mean(config.model_type, known));
}

bool TrainConfig::trains_on_gpus() const {
  require(device == "cpu" || device == "cuda", ErrorKind::kUsage, "--device {} is neither cpu nor cuda", device);
  return device == "cuda";
}

TrainTask TrainConfig::train_task() const {
  if (task == "sequence-classification") return TrainTask::kSequenceClassification;
  if (task == "token-classification") return TrainTask::kTokenClassification;
  if (task == "question-answering") return TrainTask::kQuestionAnswering;
  if (task == "causal-lm") return TrainTask::kCausalLm;
  require(task == "masked-lm", ErrorKind::kUsage,
          "--task {} is none of sequence-classification, token-classification, question-answering, causal-lm and "
          "masked-lm",
          printable(task));
  return TrainTask::kMaskedLm;
}

void TrainConfig::validate() const {
  const bool is_of_tokens = train_task() == TrainTask::kTokenClassification;
  const bool finds_answers = train_task() == TrainTask::kQuestionAnswering;
  const bool is_classifier = is_of_tokens || finds_answers || train_task() == TrainTask::kSequenceClassification;
  is_classifier ? validate_classifier() : validate_language_model();
  if (is_of_tokens) validate_token_classifier();
  if (finds_answers) {
    validate_question_answerer();
  } else {
    rows::AnswerTrainingFlags::visit_fields(answers, [this](const char* flag, const auto&, const char*) {
      require(!given.contains(flag), ErrorKind::kUsage, "--{} belongs to --task question-answering", flag);
    });
  }
  require(is_of_tokens || !given.contains("label_all_tokens"), ErrorKind::kUsage,
          "--label_all_tokens {} belongs to --task token-classification", label_all_tokens);
  require(!train_file.empty(), ErrorKind::kUsage, "--train_file names no file");
  require(!output_dir.empty(), ErrorKind::kUsage, "--output_dir names no folder");
  require_known_ranks(*this);
  constexpr int64_t kMostSeconds = 1'000'000'000;
  require(ddp_timeout >= 1 && ddp_timeout <= kMostSeconds, ErrorKind::kUsage, "--ddp_timeout {} is not in [1, {}]",
          ddp_timeout, kMostSeconds);
  check_tracker_flags(*this);
  require(has_evaluation_data() != (training.eval_strategy == "no"), ErrorKind::kUsage,
          "--{} and {}--eval_strategy {} contradict each other: {}",
          validation_file.empty() && has_evaluation_data() ? "validation_split_percentage" : "validation_file",
          given.contains("eval_strategy") ? "" : "the default ", training.eval_strategy,
          has_evaluation_data() ? "say --eval_strategy steps or epoch"
          : is_classifier       ? "evaluation needs a file"
                                : "evaluation needs that file, or --validation_split_percentage");
  for (const auto& [flag, value] :
       {std::pair("max_train_samples", max_train_samples), std::pair("max_eval_samples", max_eval_samples)}) {
    require(value >= 0, ErrorKind::kUsage, "--{} {} is negative", flag, value);
  }
  require(validation_split_percentage >= 0 && validation_split_percentage < 100, ErrorKind::kUsage,
          "--validation_split_percentage {} is not in [0, 99]", validation_split_percentage);
  require(training.max_tokens_per_batch == 0 || !given.contains("per_device_train_batch_size"), ErrorKind::kUsage,
          "--max_tokens_per_batch {} and --per_device_train_batch_size {} contradict each other: a batch has as many "
          "sequences as fit",
          training.max_tokens_per_batch, training.per_device_train_batch_size);
  require(!overwrite_output_dir || !wants_resume(*this), ErrorKind::kUsage,
          "--overwrite_output_dir and --resume_from_checkpoint {} contradict each other", resume_from_checkpoint);
  check_sharding_flags(*this);
  require_flags_for_accelerate(*this);
  deepspeed.empty() ? training.validate() : training.validate_but_updates();
}

void TrainConfig::validate_classifier() const {
  require(!model_name_or_path.empty(), ErrorKind::kUsage, "--model_name_or_path names no folder");
  require(!text.label_column.empty(), ErrorKind::kUsage, "--label_column is empty");
  text.validate();
  const auto refuse = [](const auto& value, const auto& unset, const char* flag, const char* task) {
    require(value == unset, ErrorKind::kUsage, "--{} {} belongs to --task {}", flag, value, task);
  };
  constexpr const char* kLanguageModels = "causal-lm and masked-lm";
  refuse(block_size, 0, "block_size", "causal-lm");
  require(!given.contains("mlm_probability"), ErrorKind::kUsage, "--mlm_probability {} belongs to --task masked-lm",
          mlm_probability);
  refuse(validation_split_percentage, 0, "validation_split_percentage", kLanguageModels);
  refuse(model_type, "", "model_type", kLanguageModels);
  refuse(config_name, "", "config_name", kLanguageModels);
  refuse(config_overrides, "", "config_overrides", kLanguageModels);
  rows::parse_problem_type_flag(problem_type);
}

void TrainConfig::validate_token_classifier() const {
  const auto refuse = [](const std::string& value, const char* flag) {
    require(value.empty(), ErrorKind::kUsage, "--{} {} does not belong to --task token-classification", flag, value);
  };
  refuse(text.text_pair_column, "text_pair_column");
  refuse(problem_type, "problem_type");
  constexpr int64_t kLeastLength = 3;  // two special tokens and one of a word
  require(text.max_seq_length >= kLeastLength, ErrorKind::kUsage,
          "--max_seq_length {}: with --task token-classification it is at least {}, of which two tokens are special",
          text.max_seq_length, kLeastLength);
}

void TrainConfig::validate_question_answerer() const {
  for (const char* flag : {"text_column", "text_pair_column", "label_column", "problem_type", "ignore_mismatched_sizes",
                           "label_smoothing_factor"}) {
    require(!given.contains(flag), ErrorKind::kUsage, "--{} does not belong to --task question-answering", flag);
  }
  answers.validate();
}

void TrainConfig::validate_language_model() const {
  const TrainConfig defaults;
  const auto refuse = [this](const auto& value, const auto& unset, const char* flag) {
    require(value == unset, ErrorKind::kUsage, "--{} {} does not belong to --task {}", flag, value, task);
  };
  refuse(text.text_pair_column, "", "text_pair_column");
  refuse(text.label_column, defaults.text.label_column, "label_column");
  refuse(problem_type, "", "problem_type");
  refuse(ignore_mismatched_sizes, false, "ignore_mismatched_sizes");
  train_task() == TrainTask::kMaskedLm ? validate_masked_lm() : validate_causal_lm();
  const bool from_scratch = !model_type.empty() || !config_name.empty();
  require(from_scratch != !model_name_or_path.empty(), ErrorKind::kUsage,
          "--task {} needs either --model_name_or_path, to go on training, or --model_type or --config_name, to train "
          "from scratch",
          task);
  require(model_type.empty() || config_name.empty(), ErrorKind::kUsage,
          "--model_type {} and --config_name {} contradict each other", model_type, config_name);
  require_known_model_type(*this);
  require(config_overrides.empty() || from_scratch, ErrorKind::kUsage,
          "--config_overrides {} would contradict the weights of --model_name_or_path {}", config_overrides,
          model_name_or_path);
  require(!from_scratch || !tokenizer_name.empty(), ErrorKind::kUsage,
          "--tokenizer_name names no folder, which a model from scratch needs");
}

void TrainConfig::validate_causal_lm() const {
  require(!given.contains("max_seq_length"), ErrorKind::kUsage,
          "--max_seq_length {}: with --task causal-lm it is --block_size, and longer documents are cut into pieces",
          text.max_seq_length);
  require(block_size == 0 || block_size >= 2, ErrorKind::kUsage,
          "--block_size {} is neither 0 nor at least 2: a single token predicts nothing", block_size);
  require(!given.contains("mlm_probability"), ErrorKind::kUsage, "--mlm_probability {} belongs to --task masked-lm",
          mlm_probability);
}

void TrainConfig::validate_masked_lm() const {
  require(block_size == 0, ErrorKind::kUsage, "--block_size {}: with --task masked-lm it is --max_seq_length",
          block_size);
  require_masked_piece(text.max_seq_length);
  require_mlm_probability(mlm_probability);
}

namespace {

using TellOfFlag = std::function<void(const char* flag, const std::string& value, const std::string& why)>;

// Of logging and saving.
void tell_of_intervals(const training::TrainingOptions& options, const TellOfFlag& tell) {
  const auto is_by = [](const std::string& strategy, const char* flag, training::Interval interval) {
    return training::parse_interval(strategy, flag) == interval;
  };
  if (is_by(options.save_strategy, "save_strategy", training::Interval::kNo)) {
    const char* const why = "--save_strategy is no, and the model at the end is saved anyway";
    tell("save_steps", fmt::to_string(options.save_steps), why);
    tell("save_total_limit", fmt::to_string(options.save_total_limit), why);
    tell("async_save", fmt::to_string(options.async_save), why);
  } else if (is_by(options.save_strategy, "save_strategy", training::Interval::kEpoch)) {
    tell("save_steps", fmt::to_string(options.save_steps), "--save_strategy is epoch");
  }
  const bool evaluates_as_often =
      is_by(options.eval_strategy, "eval_strategy", training::Interval::kSteps) && options.eval_steps == 0;
  if (!is_by(options.logging_strategy, "logging_strategy", training::Interval::kSteps) && !evaluates_as_often) {
    tell("logging_steps", fmt::to_string(options.logging_steps),
         fmt::format("--logging_strategy is {}", options.logging_strategy));
  }
}

void tell_of_updates(const training::TrainingOptions& options, const TellOfFlag& tell) {
  if (options.lr_scheduler_type == "constant") {
    const char* const why = "--lr_scheduler_type constant has no warm-up, constant_with_warmup has";
    tell("warmup_steps", fmt::to_string(options.warmup_steps), why);
    tell("warmup_ratio", fmt::to_string(options.warmup_ratio), why);
  }
  const optim::Optimizer optimizer(options.optimizer_settings());
  const bool is_of_file = options.configured_optimizer.has_value();
  const std::string name = is_of_file ? "the optimizer of --deepspeed" : fmt::format("--optim {}", options.optim);
  // The file's optimizer has put its own numbers in the place of these flags.
  const auto value_of = [&](double value) { return is_of_file ? std::string() : fmt::to_string(value); };
  if (!optimizer.has_betas()) {
    tell("adam_beta1", value_of(options.adam_beta1), name + " has no betas");
    tell("adam_beta2", value_of(options.adam_beta2), name + " has no betas");
  }
  const optim::OptimizerRule rule = optimizer.settings().rule;
  if (rule == optim::OptimizerRule::kSgd || rule == optim::OptimizerRule::kLion) {
    tell("adam_epsilon", value_of(options.adam_epsilon), name + " has no epsilon");
  } else if (rule == optim::OptimizerRule::kAdagrad && !is_of_file) {
    tell("adam_epsilon", value_of(options.adam_epsilon), name + " has its own, eps of --optim_args");
  }
}

}  // namespace

std::vector<std::string> flags_without_effect(const TrainConfig& config) {
  const training::TrainingOptions& options = config.training;
  std::vector<std::string> told;
  const auto tell = [&](const char* flag, const auto& value, const std::string& why) {
    const std::string text = fmt::format("{}", value);
    if (!config.given.contains(flag)) return;
    told.push_back(fmt::format("--{}{}{} has no effect: {}", flag, text.empty() ? "" : " ", text, why));
  };
  const training::Interval evaluation = training::parse_interval(options.eval_strategy, "eval_strategy");
  if (evaluation == training::Interval::kNo) {
    const char* const why = "nothing is evaluated without --validation_file and --eval_strategy";
    tell("metric_for_best_model", printable(options.metric_for_best_model), why);
    tell("greater_is_better", options.greater_is_better.value_or(false), why);
    tell("eval_steps", options.eval_steps, why);
    tell("eval_delay", options.eval_delay, why);
    tell("eval_on_start", options.eval_on_start, why);
    tell("max_eval_samples", config.max_eval_samples, why);
    tell("max_answer_length", config.answers.max_answer_length, why);
    tell("version_2_with_negative", config.answers.version_2_with_negative, why);
  } else if (evaluation == training::Interval::kEpoch) {
    tell("eval_steps", options.eval_steps, "--eval_strategy is epoch");
  }
  if (!config.validation_file.empty()) {
    tell("validation_split_percentage", config.validation_split_percentage, "there is a --validation_file");
  }
  tell_of_intervals(options, tell);
  tell_of_updates(options, tell);
  return told;
}

bool reads_text(const TrainConfig& config) {
  return !are_token_files(config.train_file) ||
         (!config.validation_file.empty() && !are_token_files(config.validation_file));
}

void require_flags_of_text(const TrainConfig& config) {
  if (reads_text(config)) return;
  for (const char* flag : {"text_column", "text_pair_column", "label_column", "encoding"}) {
    require(!config.given.contains(flag), ErrorKind::kUsage,
            "--{} cannot apply to {}: it was prepared already; leave the flag out", flag, config.train_file.front());
  }
}

}  // namespace strake::tasks
