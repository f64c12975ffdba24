#include "strake/tasks/predict.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/core/version.h"
#include "strake/data/memory_pool.h"
#include "strake/inference/engine.h"
#include "strake/scoring/job_identity.h"
#include "strake/scoring/model_fingerprint.h"
#include "strake/scoring/prediction_columns.h"
#include "strake/scoring/prediction_job.h"
#include "strake/scoring/prediction_output.h"
#include "strake/scoring/prediction_scorer.h"
#include "strake/scoring/row_numbers.h"
#include "strake/scoring/shard.h"
#include "strake/tasks/output_check.h"

namespace strake::tasks {
namespace fs = std::filesystem;
namespace {

// "int8; in bf16: layer 3 attention.qkv"
std::string text_of(const inference::PrecisionPlan& plan) {
  std::string text = inference::to_string(plan.precision);
  const char* separator = "; in bf16: ";
  for (const inference::LinearName& name : plan.bf16_linears) {
    text += separator + name.text();
    separator = ", ";
  }
  return text;
}

// Only the columns that are needed, if not all.
data::TableSource source_of(const PredictConfig& config, const rows::TextOptions& text,
                            const scoring::KeptColumns& kept) {
  data::TableSource source = rows::make_source(config.score.input, config.score.text.encoding);
  if (kept.all()) return source;
  source.columns = kept.names();
  for (const std::string& name : {text.text_column, text.text_pair_column}) {
    if (!name.empty() && std::ranges::find(source.columns, name) == source.columns.end())
      source.columns.push_back(name);
  }
  return source;
}

constexpr const char* kMaxSeqLength = "max_seq_length";
constexpr const char* kBlockSize = "block_size";
const char* length_flag(const rows::TextOptions& text) {
  return text.form == rows::RowForm::kPieces ? kBlockSize : kMaxSeqLength;
}

// What the bits of the output depend on.
Json identity_of(const PredictConfig& config, const scoring::ScoringModel& model,
                 const std::vector<std::string>& columns) {
  const rows::TextOptions& text = model.text;
  Json identity{{"strake", version()},
                {"task", model.task.text()},
                {"tokenizer_fingerprint", model.tokenizer->fingerprint()},
                {"precision", text_of(model.plan)},
                {"kernels", model.kernels},
                {"text_column", text.text_column},
                {"text_pair_column", text.text_pair_column},
                {"encoding", text.encoding},
                {length_flag(text), text.max_seq_length},
                {"output_columns", columns},
                {"keep_columns", config.keep_columns},
                {"shard", config.shard},
                {"rows_per_file", config.rows_of_file()}};
  if (text.is_split()) identity["doc_stride"] = text.doc_stride;
  if (text.start_token) identity["start_token"] = *text.start_token;
  return identity;
}

// Into the output itself: nothing that two runs could differ in.
std::map<std::string, std::string> metadata_of(const PredictConfig& config, const Json& identity) {
  std::map<std::string, std::string> metadata{{"strake.model", printable(config.score.model_name_or_path, SIZE_MAX)}};
  for (const char* key : {"model_fingerprint", "tokenizer_fingerprint", "precision", "kernels", "shard"}) {
    metadata[std::string("strake.") + key] = identity.at(key).get<std::string>();
  }
  for (const char* key : {kMaxSeqLength, kBlockSize}) {
    if (identity.contains(key))
      metadata[std::string("strake.") + key] = fmt::format("{}", identity[key].get<int64_t>());
  }
  return metadata;
}

// Whether the files that a manifest lists are there. Error (kData) where only some are, or others than were written.
bool are_sound(const std::vector<scoring::WrittenFile>& files, const scoring::OutputPlace& place) {
  const auto is_gone = [&](const scoring::WrittenFile& file) { return !is_there(place.folder() / file.name); };
  if (std::ranges::all_of(files, is_gone)) return false;
  for (const scoring::WrittenFile& file : files) {
    const std::string difference = file.difference_in(place.folder());
    require(
        difference.empty(), ErrorKind::kData,
        "{} {}, though {} says that the output is complete: bring the file back, or pass --overwrite_output to score "
        "everything again",
        (place.folder() / file.name).string(), difference, place.manifest().string());
  }
  return true;
}

// A finished job with this identity in an output folder: a scheduler that starts it again has nothing left to do.
std::optional<scoring::PredictReport> finished_report(const PredictConfig& config, const scoring::OutputPlace& place,
                                                      const Json& identity) {
  if (!place.is_folder() || !is_there(place.manifest())) return std::nullopt;
  const std::string source = place.manifest().string();
  const Json manifest = read_json(place.manifest(), kMaxIndexBytes);
  if (get_or<Json>(manifest, "job", {}, source) != identity) return std::nullopt;
  if (!are_sound(scoring::parse_written_files(manifest, source), place)) return std::nullopt;
  return scoring::PredictReport{.score = {.rows = get_required<int64_t>(manifest, "rows", source),
                                          .tokens = get_required<int64_t>(manifest, "tokens", source),
                                          .precision = get_required<std::string>(manifest, "precision", source),
                                          .accuracy = get_or<Json>(manifest, "accuracy", {}, source)},
                                .resumes = get_required<int64_t>(manifest, "resumes", source),
                                .output = config.output,
                                .manifest = source};
}

// Of what unlike_shard() says.
void require_alike(const std::string& unlike) {
  require(unlike.empty(), ErrorKind::kData, "{}; --overwrite_output scores a shard again", unlike);
}

// `overwrite`: an earlier job in the folder is replaced shard by shard, and its others may still be there.
void mark_success(const scoring::OutputPlace& place, const Json& identity, bool overwrite) {
  const std::string unlike = place.unlike_shard(identity);
  if (!overwrite) require_alike(unlike);
  if (unlike.empty()) return place.mark_success();
  log::warning("no _SUCCESS yet: {}", unlike);
}

// To the rows that are this shard's; the first one of these.
int64_t cut(data::TableReader& input, const scoring::Shard& shard) {
  if (shard.is_all()) return 0;
  const int64_t rows = input.count_rows();
  const int64_t first = shard.begin(rows);
  const int64_t end = shard.end(rows);
  input.limit_to(first, end);
  log::info("shard {} of {}: rows {} to {} of {}", shard.index, shard.count, first, end, rows);
  return first;
}

struct Task {
  const PredictConfig& config;
  const scoring::OutputPlace& place;
  scoring::ScoringModel& model;
  data::TableReader& input;
  scoring::PredictionColumns columns;
  scoring::KeptColumns kept;
  scoring::StreamMemory memory;
  Json identity;
  Clock::time_point start;
};

void write_manifest(const Task& task, const scoring::PredictReport& report,
                    const std::vector<scoring::WrittenFile>& files) {
  Json manifest = to_json(report);
  manifest["job"] = task.identity;
  manifest["threads"] = threads_per_rank(1);
  const inference::MemoryUse memory = task.model.memory();
  manifest["memory_bytes"] = {
      {"weights", memory.weights}, {"activations", memory.activations}, {"tables", task.memory.bytes}};
  for (const scoring::WrittenFile& file : files) manifest["files"].push_back(to_json(file));
  write_file_atomically(task.place.manifest(), json_text(manifest, 2) + "\n");
}

// Where nothing speaks against what is about to be scored.
void open_job(const Task& task, scoring::PredictionJob& job) {
  const bool overwrite = task.config.overwrite_output;
  if (!overwrite) require_alike(task.place.unlike_shard(task.identity));
  task.place.remove_leftovers();
  if (overwrite || !job.is_unfinished()) task.place.make_room(task.identity, overwrite);
  using enum scoring::PredictionJob::Leftover;
  job.open(task.identity, scoring::numbers_per_row(task.model), overwrite ? kDelete : kContinue);
}

void score_and_write(const Task& task, scoring::PredictionJob& job, scoring::PredictReport& report) {
  const int64_t first_row = cut(task.input, scoring::Shard::parse(task.config.shard));
  scoring::PredictionOutput output(
      task.place, task.columns, task.kept,
      {.rows_per_file = task.config.rows_of_file(), .metadata = metadata_of(task.config, task.identity)});
  scoring::score_into({task.config.score, task.model, job.journal(), output}, task.input, first_row, report);
  Json identity = task.identity;
  scoring::add_files(identity, task.input.files());
  const scoring::IdentityDifference changed = scoring::difference_of(task.identity, identity);
  require(changed.key.empty(), ErrorKind::kData, "the input changed while it was read: {} was {}, now it is {}",
          changed.key, changed.before, changed.now);
  const auto scored = Clock::now();
  output.finish();
  report.seconds_waiting_for_output += seconds_since(scored);
  report.score.seconds = seconds_since(task.start);
  report.peak_resident_bytes = peak_resident_bytes();
  write_manifest(task, report, output.files());
}

void tell_memory(const scoring::StreamMemory& memory) {
  log::info(
      "{:.0f} MB at most for {} tables from input to output, of {} rows or {:.0f} MB each, a row group, and columns",
      static_cast<double>(memory.bytes) / 1e6, memory.tables, data::TableSource().rows_per_chunk,
      static_cast<double>(data::kTableBytes) / 1e6);
}

// Of a job that an error ends.
void tell_what_is_kept(int64_t rows, const scoring::OutputPlace& place, Error& error) {
  if (rows == 0) return;
  const std::string kept = fmt::format("{} rows are scored and kept in {}", rows, place.job_folder().string());
  if (error.kind() == ErrorKind::kIo) error.add_context(kept + ": the same command goes on with them");
  if (error.kind() == ErrorKind::kData) {
    error.add_context(kept + ", but only for this input: with another one, start over with --overwrite_output");
  }
}

}  // namespace

void PredictConfig::validate() const {
  score.validate();
  require(!output.empty(), ErrorKind::kUsage, "--output names no file");
  require(output != "-", ErrorKind::kUsage,
          "--output -: predict writes files; strake worker writes to standard output");
  require(
      score.text.label_column.empty(), ErrorKind::kUsage,
      "--label_column {}: predict needs no labels and keeps all columns; to compare with labels use strake evaluate",
      score.text.label_column);
  require(rows_of_file() > 0, ErrorKind::kUsage, "--rows_per_file {} must be positive", rows_of_file());
  scoring::check_output_columns(output_columns);
  const scoring::KeptColumns kept(keep_columns);
  scoring::Shard::parse(shard);
}

scoring::PredictReport predict(const PredictConfig& config) {
  data::choose_memory_pool();
  config.validate();
  const scoring::OutputPlace place(config.output, scoring::Shard::parse(config.shard));
  const std::string name = place.is_folder() ? config.output : place.data_file(0).string();
  require(place.is_folder() || !config.rows_per_file, ErrorKind::kUsage,
          "--rows_per_file {} is for an output folder: write --output {}/, or leave it out", config.rows_of_file(),
          config.output);
  check_output(place, config.score.input, config.score.model_name_or_path);
  if (place.is_folder()) strake::create_directories(place.folder());
  scoring::PredictionJob job(place.job_folder(), name);
  const scoring::KeptColumns kept(config.keep_columns);
  scoring::ScoringPlan plan = scoring::plan_scoring(config.score);
  data::TableReader input(source_of(config, plan.text, kept));
  scoring::look_at_columns(plan, config.score.task, input.no_rows());
  const scoring::PredictionColumns columns(config.output_columns, plan.task);
  columns.require_new(input.column_names(), kept, input.files().front().string());
  const auto loading = Clock::now();
  auto fingerprint = std::async(std::launch::async, scoring::fingerprint_of, fs::path(config.score.model_name_or_path));
  scoring::ScoringModel model = scoring::load_scoring_model(config.score, plan);
  const std::string loaded = fingerprint.get().text();  // here, so that errors of loading come first
  Task task{.config = config,
            .place = place,
            .model = model,
            .input = input,
            .columns = columns,
            .kept = kept,
            .memory = scoring::stream_memory(config.score, model,
                                             std::ssize(input.column_names()) + std::ssize(columns.names())),
            .identity = {},
            .start = Clock::now()};
  tell_memory(task.memory);
  task.identity = identity_of(config, model, columns.names());
  scoring::add_files(task.identity, input.files());
  task.identity["model_fingerprint"] = loaded;
  if (!config.overwrite_output && !job.is_unfinished()) {
    if (const auto report = finished_report(config, place, task.identity)) {
      log::info("{} is complete: nothing is left to be done", name);
      mark_success(place, task.identity, false);
      return *report;
    }
  }
  open_job(task, job);
  scoring::PredictReport report{.score = {.load_seconds = seconds_between(loading, task.start),
                                          .precision = model.precision,
                                          .accuracy = model.accuracy},
                                .resumes = job.resumes(),
                                .output = name,
                                .manifest = place.manifest().string()};
  try {
    score_and_write(task, job, report);
  } catch (Error& error) {
    tell_what_is_kept(job.journal().rows(), place, error);
    throw;
  }
  job.finish();
  mark_success(place, task.identity, config.overwrite_output);
  return report;
}

}  // namespace strake::tasks
