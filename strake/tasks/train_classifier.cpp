#include <algorithm>

#include "strake/core/error.h"
#include "strake/data/token_files.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/monitor/evaluation_metrics.h"
#include "strake/rows/collect_labels.h"
#include "strake/rows/known_tokens.h"
#include "strake/tasks/splits.h"
#include "strake/tasks/train_job.h"
#include "strake/tensors/checkpoint_files.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

struct ClassifierSetup {
  models::EncoderConfig model_config;
  JobInputs inputs;
  rows::TextOptions text;
  int workers = 1;
};

bool has_classifier(const models::SequenceClassifier& model, const fs::path& folder) {
  const tensors::CheckpointFiles files(folder);
  const auto& head = model.blocks().back()->parameters();
  return std::ranges::any_of(head, [&](const models::ParameterSpec& spec) {
    return spec.name == "head.classifier.weight" && files.contains(spec.checkpoint_names.front());
  });
}

rows::LabelMap labels_of_training_data(const TrainConfig& config, std::optional<models::ProblemType> problem) {
  if (const auto files = data::token_files(config.train_file); !files.empty()) {
    const data::TokenFileReader reader(files.front());
    const std::optional<models::ProblemType> prepared = rows::problem_of(reader.info().label_kind);
    require(prepared.has_value(), ErrorKind::kData, "{} has no labels: prepare it with --label_column",
            config.train_file.front());
    require(config.problem_type.empty() || problem == prepared, ErrorKind::kUsage,
            "--problem_type {} contradicts {}, whose labels are of {}", config.problem_type, config.train_file.front(),
            to_string(*prepared));
    if (prepared == models::ProblemType::kRegression) return rows::LabelMap::numbers();
    require(!reader.info().label_names.empty(), ErrorKind::kData,
            "{}: its labels are classes, and strake.label_names names none", config.train_file.front());
    return rows::LabelMap::classes(reader.info().label_names, *prepared);
  }
  return rows::collect_labels(rows::make_source(config.train_file, config.text.encoding), config.text.label_column,
                              problem);
}

rows::LabelMap labels_of_new_head(const TrainConfig& config, std::optional<models::ProblemType> problem) {
  rows::LabelMap labels = labels_of_training_data(config, problem);
  const bool has_lists = labels.problem() == models::ProblemType::kMultiLabelClassification;
  require(!labels.names().empty(), ErrorKind::kData, "{} has no {}", config.train_file.front(),
          has_lists ? "labels: all lists are empty" : "rows");
  require(labels.problem() != models::ProblemType::kSingleLabelClassification || labels.names().size() >= 2,
          ErrorKind::kData, "{}: column '{}' has {} different labels; a classifier needs at least 2",
          config.train_file.front(), config.text.label_column, labels.names().size());
  return labels;
}

// The model's own if they are the same ones.
rows::LabelMap labels_in_order_of(const models::EncoderConfig& model_config, const rows::LabelMap& labels) {
  const bool is_regression = model_config.problem() == models::ProblemType::kRegression;
  const bool is_same = !is_regression && labels.problem() == model_config.problem() &&
                       std::ranges::is_permutation(labels.names(), model_config.labels);
  return is_same ? rows::LabelMap::of(model_config) : labels;
}

// Labels of a new head come from the training data; a head that was trained before keeps its own, unless they were
// never named (LABEL_0, ...) and the data has as many.
rows::LabelMap choose_labels(const TrainConfig& config, const models::EncoderConfig& model_config) {
  const auto problem = rows::parse_problem_type_flag(config.problem_type);
  if (!has_classifier(models::SequenceClassifier(model_config), config.model_name_or_path)) {
    return labels_of_new_head(config, problem);
  }
  if (config.ignore_mismatched_sizes) return labels_in_order_of(model_config, labels_of_new_head(config, problem));
  require(!problem || *problem == model_config.problem(), ErrorKind::kUsage,
          "--problem_type {} contradicts the trained head of {}; --ignore_mismatched_sizes gives it up",
          config.problem_type, config.model_name_or_path);
  rows::LabelMap trained = rows::LabelMap::of(model_config);
  if (!trained.has_generic_names() || trained.problem() == models::ProblemType::kRegression) return trained;
  rows::LabelMap named = labels_of_training_data(config, trained.problem());
  return named.names().size() == trained.names().size() ? named : trained;
}

std::string describe_labels(data::TokenLabelKind kind, const std::vector<std::string>& names) {
  constexpr size_t kLongestList = 300;
  if (kind == data::TokenLabelKind::kNone) return "none";
  if (kind == data::TokenLabelKind::kNumber) return "numbers";
  const std::string list = printable(fmt::format("{}", fmt::join(names, ", ")), kLongestList);
  return kind == data::TokenLabelKind::kClasses ? "lists of " + list : list;
}

data::TokenDataset load_tokens(const std::vector<std::string>& paths, const tokenizers::Tokenizer& tokenizer,
                               const rows::LabelMap& labels) {
  const data::TokenFiles files({paths.begin(), paths.end()});
  require(files.info().tokenizer == tokenizer.fingerprint(), ErrorKind::kData,
          "{} was prepared with another tokenizer than the model's", paths.front());
  const bool regression = labels.problem() == models::ProblemType::kRegression;
  const data::TokenLabelKind expected = rows::label_kind_of(labels.problem());
  std::vector<int32_t> ids;  // of the model, by class of the file
  for (const std::string& name : files.info().label_names) {
    if (const auto id = labels.find(name)) ids.push_back(*id);
  }
  require(files.info().label_kind == expected && (regression || ids.size() == files.info().label_names.size()),
          ErrorKind::kData, "the labels of {} are not those of the model: found {}, expected {}", paths.front(),
          describe_labels(files.info().label_kind, files.info().label_names),
          describe_labels(expected, labels.names()));
  data::TokenDataset dataset = files.load();
  if (!regression) dataset.renumber_classes(ids);
  return dataset;
}

data::TokenDataset load_split(Split& split, const ClassifierSetup& setup, const rows::LabelMap& labels) {
  const std::vector<std::string>& paths = split.paths;
  if (split.tables) split.tables->limit_to(0, split.most_sequences);  // a row is a sequence
  data::TokenDataset dataset =
      split.tables ? rows::encode_all(*split.tables, setup.inputs.tokenizer, setup.text, &labels, setup.workers)
                   : load_tokens(paths, *setup.inputs.tokenizer, labels);
  dataset.keep_first(split.most_sequences);
  require(dataset.size() > 0, ErrorKind::kData, "{} has no rows", paths.front());
  if (dataset.label_kind() == data::TokenLabelKind::kClasses) dataset.set_num_classes(std::ssize(labels.names()));
  rows::require_known_tokens(dataset, setup.model_config.vocab_size, paths.front());
  rows::require_known_types(dataset.has_pairs(), setup.model_config, paths.front());
  int64_t longest = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    longest = std::max(longest, dataset.length(i));
    // A classifier reads a text's first token.
    if (dataset.length(i) == 0) fail(ErrorKind::kData, "{}: row {} has no tokens", paths.front(), i);
  }
  require(longest <= setup.model_config.max_sequence_length(), ErrorKind::kConfig,
          "{}: sequences of {} tokens do not fit the model's {} positions: prepare it with a lower --max_seq_length",
          paths.front(), longest, setup.model_config.max_sequence_length());
  return dataset;
}

monitor::NamedValues metrics_of(models::ProblemType problem) {
  switch (problem) {
    case models::ProblemType::kRegression:
      return monitor::RegressionMetrics().named_values();
    case models::ProblemType::kMultiLabelClassification:
      return monitor::MultiLabelMetrics().named_values();
    case models::ProblemType::kSingleLabelClassification:
      break;
  }
  return monitor::ClassificationMetrics().named_values();
}

void require_metric_of(models::ProblemType problem, const training::TrainingOptions& options) {
  std::vector<std::string> metrics;
  for (const auto& [name, value] : metrics_of(problem)) metrics.push_back(name);
  require_known_metric(options, problem == models::ProblemType::kRegression ? "regression" : "classification", metrics);
}

void require_length_of_tokens(const TrainConfig& config) {
  if (!config.given.contains("max_seq_length")) return;
  for (const auto* paths : {&config.train_file, &config.validation_file}) {
    for (const fs::path& path : data::token_files(*paths)) {
      const int64_t prepared = data::TokenFileReader(path).info().max_length;
      require(prepared == config.text.max_seq_length, ErrorKind::kUsage,
              "--max_seq_length {} contradicts {}: it was prepared already, with {}; leave the flag out or prepare it "
              "again",
              config.text.max_seq_length, path.string(), prepared);
    }
  }
}

ClassifierSetup load_classifier_setup(const TrainConfig& config, int workers) {
  ClassifierSetup setup{.model_config = models::read_encoder_config(config.model_name_or_path),
                        .inputs = {.tokenizer = load_tokenizer(config)},
                        .text = config.text,
                        .workers = workers};
  require_flags_of_text(config);
  require_length_of_tokens(config);
  if (reads_text(config)) {
    setup.text.max_seq_length =
        sequence_length(config, config.text.max_seq_length, setup.model_config, *setup.inputs.tokenizer);
  }
  Splits splits = open_splits(config, config.text);
  const rows::LabelMap labels = choose_labels(config, setup.model_config);
  setup.model_config.set_labels(labels.names(), labels.problem());
  require_metric_of(labels.problem(), config.training);
  const double smoothing = config.training.label_smoothing_factor;
  require(smoothing == 0 || labels.problem() == models::ProblemType::kSingleLabelClassification, ErrorKind::kUsage,
          "--label_smoothing_factor {} needs texts with one class each, and the problem is {}", smoothing,
          to_string(labels.problem()));
  setup.inputs.train = load_split(splits.train, setup, labels);
  if (!splits.evaluation.paths.empty()) setup.inputs.evaluation = load_split(splits.evaluation, setup, labels);
  return setup;
}

class ClassifierJob final : public TrainJob {
 public:
  ClassifierJob(const TrainConfig& config, ClassifierSetup setup)
      : TrainJob(config, std::move(setup.inputs)),
        model_(std::move(setup.model_config), config.training.label_smoothing_factor) {
    training::freeze_parameters(model_, config.training.frozen);
  }

  const models::Model& model() const override { return model_; }
  std::string describe() const override {
    return fmt::format("{} with {} parameters and {} labels", model_.config().model_type, model_.num_parameters(),
                       model_.config().num_labels());
  }
  training::Evaluation evaluate(training::ShardedParameters& parameters, comm::Comm& comm) const override {
    return training::evaluate(model_, parameters, comm, evaluation_data(), eval_batch_size());
  }
  int64_t hidden_size() const override { return model_.config().hidden_size; }
  int64_t outputs_of_row() const override { return model_.config().num_labels(); }
  std::string config_json() const override { return models::to_json_text(model_.config(), "float32"); }

 private:
  models::SequenceClassifier model_;
};

}  // namespace

std::unique_ptr<TrainJob> make_classifier_job(const TrainConfig& config, int workers) {
  return std::make_unique<ClassifierJob>(config, load_classifier_setup(config, workers));
}

}  // namespace strake::tasks
