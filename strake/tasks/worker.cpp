#include "strake/tasks/worker.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/table_stream.h"
#include "strake/data/text_pipeline.h"
#include "strake/tasks/prediction_columns.h"

namespace strake::tasks {
namespace {

using Clock = std::chrono::steady_clock;

// The schema of what will be written. Also finds text columns that are missing or are no text before the first batch.
void begin_output(const WorkerConfig& config, data::TableStream& stream, const PredictionColumns& columns,
                  const KeptColumns& kept, int64_t width) {
  const data::Table none = stream.no_rows();
  none.text(config.score.text.text_column);
  if (!config.score.text.text_pair_column.empty()) none.text(config.score.text.text_pair_column);
  stream.begin(kept.of(none), columns.of(at::empty({0, width}, at::kFloat)));
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
  begin_output(config, stream, columns, kept, model.engine.width());

  ScoreReport report{.load_seconds = model.load_seconds, .precision = model.precision};
  EncoderPool pool(model.tokenizer);
  const auto encode = [&](const data::Table& table) {
    return interrupting(stream, [&] { return pool.encode(table, config.score.text, nullptr); });
  };
  const auto score = [&](const EncodedRows& rows) {
    interrupting(stream, [&] {
      const at::Tensor logits = score_encoded(config.score, model, rows, 0, rows.num_rows());
      stream.write(kept.of(rows.table), columns.of(logits));
      report.rows += rows.num_rows();
      report.tokens += std::ssize(rows.ids);
    });
  };
  data::ordered_parallel_map([&] { return stream.next(); }, encode, score, {.workers = 1});
  stream.finish();
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  log::info("{} rows and {} tokens in {:.1f} s", report.rows, report.tokens, report.seconds);
  return report;
}

}  // namespace strake::tasks
