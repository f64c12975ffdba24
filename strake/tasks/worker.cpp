#include "strake/tasks/worker.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/table_stream.h"
#include "strake/data/text_pipeline.h"
#include "strake/tasks/prediction_columns.h"
#include "strake/tasks/token_entities.h"

namespace strake::tasks {
namespace {

// The schema of what will be written. Also finds text columns that are missing or are no text before the first batch.
void begin_output(const WorkerConfig& config, data::TableStream& stream, const PredictionColumns& columns,
                  const KeptColumns& kept, const ScoredRows& no_rows) {
  const data::Table none = stream.no_rows();
  none.text(config.score.text.text_column);
  if (!config.score.text.text_pair_column.empty()) none.text(config.score.text.text_pair_column);
  stream.begin(kept.of(none), columns.of(no_rows));
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
  check_output_columns(output_columns);
  const KeptColumns kept(keep_columns);
}

ScoreReport work(const WorkerConfig& config) {
  config.validate();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error with a message
  ScoringModel model = load_scoring_model(config.score);
  const auto start = Clock::now();
  const PredictionColumns columns(config.output_columns, model.task.task, model.engine.config());
  const KeptColumns kept(config.keep_columns);
  data::TableStream stream(STDIN_FILENO, STDOUT_FILENO, "standard input");
  begin_output(config, stream, columns, kept,
               model.engine.gives_tokens() ? ScoredRows(data::SpanRows{})
                                           : ScoredRows(at::empty({0, model.engine.width()}, at::kFloat)));

  ScoreReport report{.load_seconds = model.load_seconds, .precision = model.precision};
  EncoderPool pool(model.tokenizer, model.places());
  int64_t rows_cut = 0;
  const auto encode = [&](const data::Table& table) {
    return interrupting(stream, [&] { return pool.encode(table, config.score.text, nullptr); });
  };
  const auto score = [&](const EncodedRows& rows) {
    interrupting(stream, [&] {
      const at::Tensor outputs = score_encoded(config.score, model, rows, 0, rows.num_rows());
      const ScoredRows scored = model.engine.gives_tokens()
                                    ? ScoredRows(find_entities(rows, 0, rows.num_rows(), outputs, model.task.entities))
                                    : ScoredRows(outputs);
      stream.write(kept.of(rows.table), columns.of(scored));
      rows_cut += std::ssize(rows.cut_rows);
      report.rows += rows.num_rows();
      report.tokens += std::ssize(rows.ids);
    });
  };
  data::ordered_parallel_map([&] { return stream.next(); }, encode, score, {.workers = 1});
  stream.finish();
  warn_of_cut_rows(rows_cut, config.score.text.max_seq_length);
  report.seconds = seconds_since(start);
  log::info("{} rows and {} tokens in {:.1f} s", report.rows, report.tokens, report.seconds);
  return report;
}

}  // namespace strake::tasks
