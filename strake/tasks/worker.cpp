#include "strake/tasks/worker.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/memory_pool.h"
#include "strake/data/table_stream.h"
#include "strake/data/text_pipeline.h"
#include "strake/scoring/prediction_columns.h"
#include "strake/scoring/row_numbers.h"
#include "strake/scoring/token_entities.h"

namespace strake::tasks {
namespace {

// The schema of what will be written.
void begin_output(const scoring::ScoringModel& model, data::TableStream& stream,
                  const scoring::PredictionColumns& columns, const scoring::KeptColumns& kept) {
  const data::Table none = stream.no_rows();
  const scoring::ScoredRows no_rows =
      scoring::has_row_numbers(model)
          ? scoring::scored_rows(model, none, at::empty({0, scoring::numbers_per_row(model)}, at::kFloat))
          : scoring::scored_rows(model, none, data::SpanRows{});
  stream.begin(kept.of(none), columns.of(no_rows));
}

scoring::ScoredRows score_batch(const WorkerConfig& config, scoring::ScoringModel& model,
                                const rows::EncodedRows& rows) {
  const int64_t end = rows.num_rows();
  if (scoring::has_row_numbers(model))
    return scoring::scored_rows(model, rows.table, scoring::row_numbers(config.score, model, rows, 0, end));
  const at::Tensor logits = scoring::score_encoded(config.score, model, rows, 0, end);
  return scoring::scored_rows(model, rows.table, scoring::find_entities(rows, 0, end, logits, model.task.entities));
}

// Nobody may send another batch once one has failed: a thread that waits for it must not keep the process alive.
template <typename Action>
auto interrupting(data::TableStream& stream, const Action& action) {
  try {
    return action();
  } catch (...) {
    stream.interrupt();
    throw;
  }
}

}  // namespace

void WorkerConfig::validate() const {
  score.validate();
  scoring::check_output_columns(output_columns);
  const scoring::KeptColumns kept(keep_columns);
}

scoring::ScoreReport work(const WorkerConfig& config) {
  data::choose_memory_pool();
  config.validate();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error with a message
  scoring::ScoringPlan plan = scoring::plan_scoring(config.score);
  const scoring::KeptColumns kept(config.keep_columns);
  data::TableStream stream(STDIN_FILENO, STDOUT_FILENO, "standard input");
  // Before the model is loaded: what the first schema tells.
  scoring::look_at_columns(plan, config.score.task, stream.no_rows());
  const scoring::PredictionColumns columns(config.output_columns, plan.task);
  columns.require_new(kept.of(stream.no_rows()).column_names(), kept, "standard input");
  scoring::ScoringModel model = scoring::load_scoring_model(config.score, plan);
  const auto start = Clock::now();
  begin_output(model, stream, columns, kept);

  scoring::ScoreReport report{
      .load_seconds = model.load_seconds, .precision = model.precision, .accuracy = model.accuracy};
  rows::EncoderPool pool(model.tokenizer, model.places());
  const auto encode = [&](const data::Table& table) {
    return interrupting(stream, [&] { return pool.encode(table, model.text, nullptr); });
  };
  const auto score = [&](const rows::EncodedRows& rows) {
    interrupting(stream, [&] {
      stream.write(kept.of(rows.table), columns.of(score_batch(config, model, rows)));
      report.rows_cut += std::ssize(rows.cut_rows);
      report.rows += rows.num_rows();
      report.tokens += std::ssize(rows.ids);
    });
  };
  data::ordered_parallel_map([&] { return stream.next(); }, encode, score,
                             {.workers = scoring::tokenizing_threads(config.score)});
  stream.finish();
  rows::tell_cut_rows(report.rows_cut, model.text);
  report.seconds = seconds_since(start);
  log::info("{} rows and {} tokens in {:.1f} s", report.rows, report.tokens, report.seconds);
  return report;
}

}  // namespace strake::tasks
