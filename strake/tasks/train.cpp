#include "strake/tasks/train.h"

#include <ATen/ops/zeros.h>

#include <iostream>
#include <thread>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/comm/mpi_comm.h"
#include "strake/comm/rank_environment.h"
#include "strake/comm/thread_comm.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/core/memory.h"
#include "strake/core/nearest_name.h"
#include "strake/core/threads.h"
#include "strake/data/token_file.h"
#include "strake/models/weights.h"
#include "strake/monitor/evaluation_metrics.h"
#include "strake/tasks/run_log.h"
#include "strake/tasks/sharding_flags.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/linear_products.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

// What every rank of a process shares: read once, before ranks start.
struct TrainSetup {
  models::EncoderConfig model_config;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  data::TokenDataset train;
  std::optional<data::TokenDataset> evaluation;
};

bool has_classifier(const models::SequenceClassifier& model, const fs::path& folder) {
  const tensors::CheckpointFiles files(folder);
  const auto& head = model.blocks().back()->parameters();
  return std::ranges::any_of(head, [&](const models::ParameterSpec& spec) {
    return spec.name == "head.classifier.weight" && files.contains(spec.checkpoint_names.front());
  });
}

bool are_token_files(const std::vector<std::string>& paths) {
  return !paths.empty() && fs::path(paths.front()).extension() == ".parquet" && data::is_token_file(paths.front());
}

LabelMap labels_of_training_data(const TrainConfig& config, std::optional<models::ProblemType> problem) {
  if (are_token_files(config.train_file)) {
    const data::TokenFileReader reader(config.train_file.front());
    require(reader.info().label_kind != data::TokenLabelKind::kNone, ErrorKind::kData,
            "{} has no labels: prepare it with --label_column", config.train_file.front());
    const bool numbers = reader.info().label_kind == data::TokenLabelKind::kNumber;
    const bool wants_numbers = problem == models::ProblemType::kRegression;
    require(config.problem_type.empty() || numbers == wants_numbers, ErrorKind::kUsage,
            "--problem_type {} contradicts {}, whose labels are {}", config.problem_type, config.train_file.front(),
            numbers ? "numbers" : "classes");
    return numbers ? LabelMap::numbers() : LabelMap::classes(reader.info().label_names);
  }
  return LabelMap::collect(make_source(config.train_file, config.text.encoding), config.text.label_column, problem);
}

// Labels of a new head come from the training data; a head that was trained before keeps its own, unless they were
// never named (LABEL_0, ...) and the data has as many.
LabelMap choose_labels(const TrainConfig& config, const models::EncoderConfig& model_config) {
  const auto problem = parse_problem_type_flag(config.problem_type);
  if (!has_classifier(models::SequenceClassifier(model_config), config.model_name_or_path)) {
    return labels_of_training_data(config, problem);
  }
  require(!problem || *problem == model_config.problem(), ErrorKind::kUsage,
          "--problem_type {} contradicts the trained head of {}", config.problem_type, config.model_name_or_path);
  LabelMap trained = LabelMap::of(model_config);
  if (!trained.has_generic_names() || trained.problem() == models::ProblemType::kRegression) return trained;
  LabelMap named = labels_of_training_data(config, trained.problem());
  return named.names().size() == trained.names().size() ? named : trained;
}

std::string describe_labels(data::TokenLabelKind kind, const std::vector<std::string>& names) {
  constexpr size_t kLongestList = 300;
  if (kind == data::TokenLabelKind::kNone) return "none";
  return kind == data::TokenLabelKind::kNumber ? "numbers"
                                               : printable(fmt::format("{}", fmt::join(names, ", ")), kLongestList);
}

data::TokenDataset load_tokens(const std::vector<std::string>& paths, const tokenizers::Tokenizer& tokenizer,
                               const LabelMap& labels) {
  data::LoadedTokens loaded = data::load_token_files({paths.begin(), paths.end()});
  require(loaded.info.tokenizer == tokenizer.fingerprint(), ErrorKind::kData,
          "{} was prepared with another tokenizer than the model's", paths.front());
  const bool regression = labels.problem() == models::ProblemType::kRegression;
  require(loaded.info.label_kind == (regression ? data::TokenLabelKind::kNumber : data::TokenLabelKind::kClass) &&
              (regression || loaded.info.label_names == labels.names()),
          ErrorKind::kData, "the labels of {} are not those of the model: found {}, expected {}", paths.front(),
          describe_labels(loaded.info.label_kind, loaded.info.label_names),
          describe_labels(regression ? data::TokenLabelKind::kNumber : data::TokenLabelKind::kClass, labels.names()));
  return std::move(loaded.dataset);
}

data::TokenDataset load_split(const TrainConfig& config, const std::vector<std::string>& paths, const LabelMap& labels,
                              const TrainSetup& setup, int workers) {
  data::TokenDataset dataset = are_token_files(paths) ? load_tokens(paths, *setup.tokenizer, labels)
                                                      : encode_all(make_source(paths, config.text.encoding),
                                                                   setup.tokenizer, config.text, &labels, workers);
  require(dataset.size() > 0, ErrorKind::kData, "{} has no rows", paths.front());
  require(dataset.max_token_id() < setup.model_config.vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model",
          paths.front(), dataset.max_token_id(), setup.model_config.vocab_size);
  int64_t longest = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) longest = std::max(longest, dataset.length(i));
  require(longest <= setup.model_config.max_sequence_length(), ErrorKind::kConfig,
          "{}: sequences of {} tokens do not fit the model's {} positions: prepare it with a lower --max_seq_length",
          paths.front(), longest, setup.model_config.max_sequence_length());
  return dataset;
}

// Every evaluation reports the loss and these.
void require_known_metric(const training::TrainingOptions& options, models::ProblemType problem) {
  const bool regression = problem == models::ProblemType::kRegression;
  std::vector<std::string> known{"loss"};
  for (const auto& [name, value] :
       regression ? monitor::RegressionMetrics().named_values() : monitor::ClassificationMetrics().named_values()) {
    known.push_back(name);
  }
  const std::string wanted = options.best_metric_name().substr(std::string_view("eval_").size());
  require(std::ranges::find(known, wanted) != known.end(), ErrorKind::kUsage,
          "--metric_for_best_model {} is none of the metrics of {}: {}{}", printable(options.metric_for_best_model),
          regression ? "regression" : "classification", fmt::join(known, ", "), did_you_mean(wanted, known));
}

// Text was read and cut when token files were made: what was said about it and is not so is refused.
void require_flags_of_tokens(const TrainConfig& config, bool reads_text) {
  for (const auto* paths : {&config.train_file, &config.validation_file}) {
    if (!are_token_files(*paths)) continue;
    for (const char* flag : {"text_column", "text_pair_column", "label_column", "encoding"}) {
      require(reads_text || !config.given.contains(flag), ErrorKind::kUsage,
              "--{} cannot apply to {}: it was prepared already; leave the flag out", flag, paths->front());
    }
    for (const std::string& path : *paths) {
      const int64_t prepared = data::TokenFileReader(path).info().max_length;
      require(!config.given.contains("max_seq_length") || prepared == config.text.max_seq_length, ErrorKind::kUsage,
              "--max_seq_length {} contradicts {}: it was prepared already, with {}; leave the flag out or prepare it "
              "again",
              config.text.max_seq_length, path, prepared);
    }
  }
}

TrainSetup load_setup(const TrainConfig& config, int workers) {
  TrainSetup setup{.model_config = models::read_encoder_config(config.model_name_or_path),
                   .tokenizer = tokenizers::Tokenizer::load(config.tokenizer_name.empty() ? config.model_name_or_path
                                                                                          : config.tokenizer_name),
                   .train = data::TokenDatasetBuilder("").build()};
  const bool reads_text = !are_token_files(config.train_file) ||
                          (!config.validation_file.empty() && !are_token_files(config.validation_file));
  require_flags_of_tokens(config, reads_text);
  require(!reads_text || config.text.max_seq_length <= setup.model_config.max_sequence_length(), ErrorKind::kUsage,
          "--max_seq_length {} is more than the model's {} positions", config.text.max_seq_length,
          setup.model_config.max_sequence_length());
  const LabelMap labels = choose_labels(config, setup.model_config);
  setup.model_config.set_labels(labels.names(), labels.problem());
  require_known_metric(config.training, labels.problem());
  setup.train = load_split(config, config.train_file, labels, setup, workers);
  if (!config.validation_file.empty()) {
    setup.evaluation = load_split(config, config.validation_file, labels, setup, workers);
  }
  return setup;
}

bool wants_resume(const TrainConfig& config) {
  const std::string& wish = config.resume_from_checkpoint;
  return !wish.empty() && wish != "false" && wish != "False";
}

std::optional<fs::path> find_resume(const TrainConfig& config) {
  if (!wants_resume(config)) return std::nullopt;
  const std::string& wish = config.resume_from_checkpoint;
  if (wish == "true" || wish == "True" || wish == "last") {
    const auto newest = checkpoint::newest_sound_checkpoint(config.output_dir);
    if (!newest) log::info("no checkpoint in {}: starting from the beginning", config.output_dir);
    return newest ? std::optional(newest->path) : std::nullopt;
  }
  checkpoint::verify_checkpoint(wish);
  return fs::path(wish);
}

void check_output_folder(const TrainConfig& config) {
  const bool is_free = checkpoint::list_checkpoints(config.output_dir).empty();
  require(is_free || wants_resume(config) || config.overwrite_output_dir, ErrorKind::kUsage,
          "--output_dir {} has checkpoints of an earlier run: pass --resume_from_checkpoint true to continue it or "
          "--overwrite_output_dir to delete them",
          config.output_dir);
}

// The first change on disk, made when nothing is left that could be refused.
void start_output_folder(const TrainConfig& config) {
  create_directories(config.output_dir);
  checkpoint::remove_leftovers(config.output_dir);
  if (wants_resume(config)) return;
  checkpoint::prune_checkpoints(config.output_dir, 0, std::nullopt);
  for (const auto& folder : checkpoint::list_checkpoints(config.output_dir)) fs::remove_all(folder.path);
}

// What must not change between start and resume, but for the number of ranks, whose product with the accumulation steps
// must stay.
Json run_fingerprint(const TrainConfig& config, const TrainSetup& setup, int num_ranks) {
  const training::TrainingOptions& options = config.training;
  return {{"seed", options.seed},
          {"data_seed", options.order_seed()},
          {"per_device_train_batch_size", options.per_device_train_batch_size},
          {"max_tokens_per_batch", options.max_tokens_per_batch},
          {"micro_batches_per_step", options.gradient_accumulation_steps * num_ranks},
          {"bf16", options.bf16},
          {"optim", options.optim},
          {"dataloader_drop_last", options.dataloader_drop_last},
          {"train_sequences", setup.train.size()},
          {"train_tokens", setup.train.total_tokens()},
          {"training_data_crc32c", setup.train.fingerprint()},  // after the counts, which say more, in the alphabet
          {"tokenizer", setup.tokenizer->fingerprint()},
          {"num_labels", setup.model_config.num_labels()}};
}

void load_weights(const models::SequenceClassifier& model, const TrainConfig& config,
                  training::ShardedParameters& parameters) {
  const tensors::CheckpointFiles files(config.model_name_or_path);
  models::LoadReport report;
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
    try {
      models::load_block(*model.blocks()[i], {.model = model, .files = files, .seed = config.training.seed}, whole,
                         report);
    } catch (Error& error) {
      error.add_context("while loading " + config.model_name_or_path);
      throw;
    }
    parameters.assign(i, whole);
  }
  if (!report.initialized.empty()) log::info("new, to be trained: {}", fmt::join(report.initialized, ", "));
  const auto unused = models::unused_names(model, files);
  if (!unused.empty()) log::info("not used from the checkpoint: {}", fmt::join(unused, ", "));
}

// How a run begins, beside its data.
struct Start {
  std::optional<fs::path> resume_from;
  std::string sharding_record;  // ds_config_resolved.json, if not empty
};

training::TrainReport run_rank(const TrainConfig& config, const TrainSetup& setup, const Start& start,
                               comm::Comm& comm) {
  const models::SequenceClassifier model(setup.model_config);
  training::ShardedParameters parameters(model, comm, config.training);
  if (!start.resume_from) load_weights(model, config, parameters);
  std::unique_ptr<RunLog> run_log;
  if (comm.rank() == 0) run_log = std::make_unique<RunLog>(config);
  const auto evaluate = [&] {
    return training::evaluate(model, parameters, comm, *setup.evaluation, config.training.per_device_eval_batch_size);
  };
  const monitor::EncoderShape shape{.num_layers = setup.model_config.num_hidden_layers,
                                    .hidden_size = setup.model_config.hidden_size,
                                    .intermediate_size = setup.model_config.intermediate_size,
                                    .num_labels = setup.model_config.num_labels()};
  training::TrainerInputs inputs{
      .model = model,
      .train = setup.train,
      .evaluate = setup.evaluation ? std::function<training::Evaluation()>(evaluate) : nullptr,
      .training_flops = [&](const monitor::PackedWork& work) { return monitor::training_flops(shape, work); },
      .output_dir = config.output_dir,
      .resume_from = start.resume_from,
      .fingerprint = run_fingerprint(config, setup, comm.size()),
      .write_companions =
          [&](const fs::path& folder) {
            write_file_atomically(folder / "config.json", models::to_json_text(setup.model_config, "float32"));
            setup.tokenizer->save(folder);
          },
      .listener = run_log.get()};
  training::Trainer trainer(std::move(inputs), parameters, comm, config.training);
  if (run_log) {
    start_output_folder(config);
    if (!start.sharding_record.empty()) {
      write_file_atomically(fs::path(config.output_dir) / "ds_config_resolved.json", start.sharding_record);
    }
    run_log->open(start.resume_from);
  }
  const training::TrainReport report = trainer.run();
  if (run_log) run_log->close(report);
  return report;
}

void log_sharding(const TrainConfig& config, const ShardingRequest& request) {
  for (const std::string& notice : request.notices) log::info("{}", notice);
  if (!request.table.empty()) log::info("settings of --deepspeed:\n{}", request.table);
  if (config.deepspeed.empty() && config.fsdp.empty()) return;
  log::info("sharding {}{}", config.training.sharding.stage.name,
            config.training.gradient_checkpointing ? ", activations are computed again" : "");
}

void log_environment(const TrainConfig& config, const TrainSetup& setup, int num_ranks, int threads) {
  const models::SequenceClassifier model(setup.model_config);
  log::info("{} with {} parameters and {} labels; {} training sequences, {} tokens", setup.model_config.model_type,
            model.num_parameters(), setup.model_config.num_labels(), setup.train.size(), setup.train.total_tokens());
  log::info("{} rank{} of {} thread{}; kernels {}; matrix products {}; {}", num_ranks, num_ranks == 1 ? "" : "s",
            threads, threads == 1 ? "" : "s", describe_cpu(), tensors::matmul_backend(),
            config.training.bf16 ? "bf16" : "fp32");
}

}  // namespace

void TrainConfig::validate() const {
  require(!model_name_or_path.empty(), ErrorKind::kUsage, "--model_name_or_path names no folder");
  require(!train_file.empty(), ErrorKind::kUsage, "--train_file names no file");
  require(!output_dir.empty(), ErrorKind::kUsage, "--output_dir names no folder");
  require(!text.label_column.empty(), ErrorKind::kUsage, "--label_column is empty");
  require(text.max_seq_length > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive", text.max_seq_length);
  require(ranks >= 1 && ranks <= 4096, ErrorKind::kUsage, "--ranks {} is not in [1, 4096]", ranks);
  require(report_to == "none" || report_to.empty(), ErrorKind::kUsage,
          "--report_to {}: only none is there yet; metrics.jsonl has every number", report_to);
  require(validation_file.empty() == (training.eval_strategy == "no"), ErrorKind::kUsage,
          "--validation_file and --eval_strategy {} contradict each other: {}", training.eval_strategy,
          validation_file.empty() ? "evaluation needs a file" : "say steps or epoch, or leave the file out");
  require(!overwrite_output_dir || !wants_resume(*this), ErrorKind::kUsage,
          "--overwrite_output_dir and --resume_from_checkpoint {} contradict each other", resume_from_checkpoint);
  parse_problem_type_flag(problem_type);
  training.validate();
}

training::TrainReport train(const TrainConfig& given) {
  keep_freed_memory();
  given.validate();
  TrainConfig config = given;
  log::set_level(log::parse_level(config.log_level));
  const auto environment = comm::detect_rank_environment();
  const bool under_launcher = environment && environment->size > 1;
  require(!under_launcher || config.ranks == 1, ErrorKind::kUsage,
          "--ranks {} and {} ranks started by {} contradict each other", config.ranks,
          environment ? environment->size : 1, environment ? environment->launcher : "");
  std::unique_ptr<comm::Comm> mpi;
  if (under_launcher) mpi = comm::make_mpi_comm(*environment);
  const int num_ranks = under_launcher ? mpi->size() : static_cast<int>(config.ranks);
  const int threads = threads_per_rank(under_launcher ? environment->local_size : num_ranks);
  log::set_rank(mpi ? mpi->rank() : 0);
  tensors::set_compute_threads(threads);

  const auto run = [&]() -> training::TrainReport {
    const ShardingRequest sharding = apply_sharding_flags(
        config, {.world = num_ranks, .per_node = under_launcher ? environment->local_size : num_ranks},
        models::read_encoder_config(config.model_name_or_path).hidden_size);
    config.validate();
    log_sharding(config, sharding);
    const TrainSetup setup = load_setup(config, under_launcher ? threads : available_cores());
    log_environment(config, setup, num_ranks, threads);
    if (config.dry_run) return {};
    if (!mpi || mpi->rank() == 0) check_output_folder(config);
    const auto record = sharding.record.is_null() ? std::string() : sharding.record.dump(2) + "\n";
    const auto resume_from = find_resume(config);
    if (mpi) return run_rank(config, setup, {resume_from, record}, *mpi);
    if (num_ranks == 1) {
      comm::SelfComm self;
      return run_rank(config, setup, {resume_from, record}, self);
    }
    training::TrainReport report;
    comm::run_ranks(num_ranks, threads, [&](comm::Comm& comm) {
      training::TrainReport own = run_rank(config, setup, {resume_from, record}, comm);
      if (comm.rank() == 0) report = std::move(own);
    });
    return report;
  };
  try {
    return run();
  } catch (const Error& error) {
    if (mpi) mpi->abort(error.kind(), error.what());
    throw;
  } catch (const std::exception& error) {
    if (mpi) mpi->abort(ErrorKind::kInternal, error.what());
    throw;
  }
}

}  // namespace strake::tasks
