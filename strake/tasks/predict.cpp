#include "strake/tasks/predict.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/data/task_queue.h"
#include "strake/data/text_pipeline.h"
#include "strake/tasks/prediction_columns.h"
#include "strake/tasks/prediction_job.h"
#include "strake/tasks/prediction_output.h"
#include "strake/tasks/shard.h"

namespace strake::tasks {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

// What is lost when the machine stops: large enough that threads seldom wait for the last one of a call.
constexpr int64_t kChunksPerRecord = 64;  // of --max_tokens_per_batch, for each thread
constexpr size_t kMostTasks = 4;          // of writing that wait
constexpr double kSecondsPerMessage = 30;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

const char* precision_of(const ScoreConfig& config) { return config.bf16 ? "bf16" : "fp32"; }

std::span<float> numbers_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// Only the columns that are needed, if not all.
data::TableSource source_of(const PredictConfig& config, const KeptColumns& kept) {
  data::TableSource source = make_source(config.score.input, config.score.text.encoding);
  if (kept.all()) return source;
  source.columns = kept.names();
  for (const std::string& name : {config.score.text.text_column, config.score.text.text_pair_column}) {
    if (!name.empty() && std::ranges::find(source.columns, name) == source.columns.end()) source.columns.push_back(name);
  }
  return source;
}

// What the bits of the output depend on.
Json identity_of(const PredictConfig& config, const ScoringModel& model, const std::vector<std::string>& columns,
                 const std::vector<std::string>& files) {
  const TextOptions& text = config.score.text;
  Json identity{{"model_fingerprint", model_fingerprint(config.score.model_name_or_path)},
                {"tokenizer_fingerprint", model.tokenizer->fingerprint()},
                {"precision", precision_of(config.score)},
                {"kernels", to_string(best_isa())},
                {"text_column", text.text_column},
                {"text_pair_column", text.text_pair_column},
                {"encoding", text.encoding},
                {"max_seq_length", text.max_seq_length},
                {"output_columns", columns},
                {"keep_columns", config.keep_columns},
                {"shard", config.shard},
                {"rows_per_file", config.rows_per_file}};
  for (size_t i = 0; i < files.size(); ++i) identity[fmt::format("input file {:05}", i)] = files[i];
  return identity;
}

// Into the output itself: nothing that two runs could differ in.
std::map<std::string, std::string> metadata_of(const PredictConfig& config, const Json& identity) {
  std::map<std::string, std::string> metadata{{"strake.model", config.score.model_name_or_path}};
  for (const char* key : {"model_fingerprint", "tokenizer_fingerprint", "precision", "kernels", "shard"}) {
    metadata[std::string("strake.") + key] = identity.at(key).get<std::string>();
  }
  metadata["strake.max_seq_length"] = fmt::format("{}", config.score.text.max_seq_length);
  return metadata;
}

// Reading and tokenizing, scoring, and writing, all at the same time.
class Scorer {
 public:
  Scorer(const PredictConfig& config, ScoringModel& model, PredictionJournal& journal, PredictionOutput& output)
      : config_(config),
        model_(model),
        journal_(journal),
        output_(output),
        tokens_per_record_(kChunksPerRecord * config.score.max_tokens_per_batch * threads_per_rank(1)) {}

  void run(const data::TableSource& source, PredictReport& report) {
    data::TableReader reader(source);
    output_.check_names(reader.column_names(), reader.files().front().string());
    EncoderPool pool(model_.tokenizer);
    const int64_t first_new_row = source.first_row + journal_.rows_found();
    const auto encode = [&](data::Table table) {
      const int64_t found = std::clamp<int64_t>(first_new_row - table.first_row(), 0, table.num_rows());
      return Window{pool.encode(std::move(table), config_.score.text, nullptr, found), found};
    };
    data::TaskQueue writing(kMostTasks);
    auto left = Clock::now();
    const auto score = [&](const Window& window) {
      report.seconds_waiting_for_input += seconds_since(left);
      score_window(window, writing, report);
      tell_progress(report);
      left = Clock::now();
    };
    constexpr int kThreadsPerTokenizer = 16;
    data::ordered_parallel_map([&] { return reader.next(); }, encode, score,
                               {.workers = 1 + threads_per_rank(1) / kThreadsPerTokenizer});
    writing.finish();
    report.seconds_waiting_for_output = writing.seconds_waited();
    report.score.tokens = journal_.tokens_found() + report.tokens_scored;
  }

 private:
  struct Window {
    EncodedRows rows;
    int64_t found = 0;  // rows at the beginning that are in the journal
  };

  int64_t record_end(const EncodedRows& rows, int64_t begin) const {
    const auto end = std::ranges::upper_bound(rows.offsets, rows.offsets[begin] + tokens_per_record_);
    return std::clamp<int64_t>(end - rows.offsets.begin() - 1, begin + 1, rows.num_rows());
  }

  void score_window(const Window& window, data::TaskQueue& writing, PredictReport& report) {
    const EncodedRows& rows = window.rows;
    const at::Tensor logits = at::empty({rows.num_rows(), model_.engine.config().num_labels()}, at::kFloat);
    if (window.found > 0) journal_.read(numbers_of(logits.narrow(0, 0, window.found)));
    for (int64_t begin = window.found; begin < rows.num_rows();) {
      const int64_t end = record_end(rows, begin);
      const at::Tensor part = score_encoded(config_.score, model_, rows, begin, end);
      logits.narrow(0, begin, end - begin).copy_(part);
      const int64_t tokens = rows.offsets[end] - rows.offsets[begin];
      writing.push([this, part, tokens] { journal_.append(numbers_of(part), tokens); });
      report.rows_scored += end - begin;
      report.tokens_scored += tokens;
      begin = end;
    }
    writing.push([this, table = rows.table, logits] { output_.append(table, logits); });
    report.score.rows += rows.num_rows();
  }

  void tell_progress(const PredictReport& report) {
    if (seconds_since(told_) < kSecondsPerMessage) return;
    told_ = Clock::now();
    log::info("{} rows, {:.1f} a second", report.score.rows,
              static_cast<double>(report.rows_scored) / seconds_since(start_));
  }

  const PredictConfig& config_;
  ScoringModel& model_;
  PredictionJournal& journal_;
  PredictionOutput& output_;
  int64_t tokens_per_record_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point told_ = start_;
};

void write_manifest(const OutputPlace& place, const Json& identity, const PredictReport& report,
                    const std::vector<fs::path>& files) {
  Json manifest = to_json(report);
  manifest["job"] = identity;
  manifest["threads"] = threads_per_rank(1);
  for (const fs::path& file : files) manifest["files"].push_back(file.filename().string());
  write_file_atomically(place.manifest(), manifest.dump(2) + "\n");
}

// A finished job with this identity in an output folder: a scheduler that starts it again has nothing left to do.
std::optional<PredictReport> finished_report(const OutputPlace& place, const Json& identity) {
  std::error_code error;
  if (!place.is_folder() || !fs::exists(place.manifest(), error)) return std::nullopt;
  const std::string source = place.manifest().string();
  const Json manifest = read_json(place.manifest(), kMaxIndexBytes);
  if (get_or<Json>(manifest, "job", {}, source) != identity) return std::nullopt;
  for (const std::string& name : get_required<std::vector<std::string>>(manifest, "files", source)) {
    if (!fs::exists(place.folder() / name, error)) return std::nullopt;
  }
  return PredictReport{.score = {.rows = get_required<int64_t>(manifest, "rows", source),
                                 .tokens = get_required<int64_t>(manifest, "tokens", source)},
                       .resumes = get_required<int64_t>(manifest, "resumes", source)};
}

// The rows [begin, end) of the source that are this shard's.
void cut(data::TableSource& source, const Shard& shard) {
  if (shard.is_all()) return;
  data::TableSource whole = source;
  whole.columns = {};
  const int64_t rows = data::count_rows(whole);
  source.first_row = shard.begin(rows);
  source.end_row = shard.end(rows);
  log::info("shard {} of {}: rows {} to {} of {}", shard.index, shard.count, source.first_row, source.end_row, rows);
}

struct Task {
  const PredictConfig& config;
  const OutputPlace& place;
  ScoringModel& model;
  PredictionColumns columns;
  KeptColumns kept;
  std::vector<fs::path> files;
  Json identity;
  Clock::time_point start;
};

void score_and_write(const Task& task, PredictionJob& job, PredictReport& report) {
  data::TableSource source = source_of(task.config, task.kept);
  cut(source, Shard::parse(task.config.shard));
  PredictionOutput output(task.place, task.columns, task.kept,
                          {.rows_per_file = task.config.rows_per_file, .metadata = metadata_of(task.config, task.identity)});
  Scorer(task.config, task.model, job.journal(), output).run(source, report);
  const std::vector<std::string> found = describe_files(task.files);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string& before = task.identity.at(fmt::format("input file {:05}", i)).get_ref<const std::string&>();
    require(found[i] == before, ErrorKind::kData, "the input changed while it was read: it was {}, now it is {}",
            before, found[i]);
  }
  const auto scored = Clock::now();
  output.finish();
  report.seconds_waiting_for_output += seconds_since(scored);
  report.score.seconds = seconds_since(task.start);
  report.peak_resident_bytes = peak_resident_bytes();
  write_manifest(task.place, task.identity, report, output.files());
  task.place.mark_success(task.identity);
}

}  // namespace

void PredictConfig::validate() const {
  score.validate();
  require(!output.empty(), ErrorKind::kUsage, "--output names no file");
  require(
      score.text.label_column.empty(), ErrorKind::kUsage,
      "--label_column {}: predict needs no labels and keeps all columns; to compare with labels use strake evaluate",
      score.text.label_column);
  require(rows_per_file > 0, ErrorKind::kUsage, "--rows_per_file {} must be positive", rows_per_file);
  check_output_columns(output_columns);
  const KeptColumns kept(keep_columns);
  Shard::parse(shard);
}

Json to_json(const PredictReport& report) {
  const double seconds = report.score.seconds;
  const auto rate = [&](int64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0.0; };
  return {{"output", report.output},
          {"rows", report.score.rows},
          {"tokens", report.score.tokens},
          {"rows_scored", report.rows_scored},
          {"tokens_scored", report.tokens_scored},
          {"load_seconds", report.score.load_seconds},
          {"seconds", seconds},
          {"rows_per_second", rate(report.rows_scored)},
          {"tokens_per_second", rate(report.tokens_scored)},
          {"seconds_waiting_for_input", report.seconds_waiting_for_input},
          {"seconds_waiting_for_output", report.seconds_waiting_for_output},
          {"peak_resident_bytes", report.peak_resident_bytes},
          {"resumes", report.resumes}};
}

PredictReport predict(const PredictConfig& config) {
  config.validate();
  const OutputPlace place(config.output, Shard::parse(config.shard));
  const std::string name = place.is_folder() ? config.output : place.data_file(0).string();
  if (place.is_folder()) strake::create_directories(place.folder());
  PredictionJob job(place.job_folder(), name);
  ScoringModel model = load_scoring_model(config.score);
  const auto start = Clock::now();
  Task task{.config = config,
            .place = place,
            .model = model,
            .columns = {config.output_columns, model.engine.config()},
            .kept = KeptColumns(config.keep_columns),
            .files = data::expand_paths(make_source(config.score.input, config.score.text.encoding).paths, {}),
            .identity = {},
            .start = start};
  task.identity = identity_of(config, model, task.columns.names(), describe_files(task.files));
  if (!config.overwrite_output && !job.is_unfinished()) {
    if (std::optional<PredictReport> report = finished_report(place, task.identity)) {
      log::info("{} is complete: nothing is left to be done", name);
      place.mark_success(task.identity);
      report->output = name;
      report->manifest = place.manifest().string();
      return *report;
    }
  }
  place.remove_leftovers();
  if (config.overwrite_output || !job.is_unfinished()) place.make_room(config.overwrite_output);
  job.open(task.identity, model.engine.config().num_labels(),
           config.overwrite_output ? PredictionJob::Leftover::kDelete : PredictionJob::Leftover::kContinue);

  PredictReport report{.score = {.load_seconds = model.load_seconds},
                       .resumes = job.resumes(),
                       .output = name,
                       .manifest = place.manifest().string()};
  try {
    score_and_write(task, job, report);
  } catch (Error& error) {
    if (error.kind() == ErrorKind::kIo && job.journal().rows() > 0) {
      error.add_context(fmt::format("{} rows are scored and kept in {}: the same command goes on with them",
                                    job.journal().rows(), place.job_folder().string()));
    }
    throw;
  }
  job.finish();
  return report;
}

}  // namespace strake::tasks
