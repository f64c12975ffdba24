#include "strake/scoring/prediction_scorer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/data/column_buffers.h"
#include "strake/data/task_queue.h"
#include "strake/data/text_pipeline.h"
#include "strake/scoring/row_numbers.h"
#include "strake/scoring/token_entities.h"

namespace strake::scoring {
namespace {

// What is lost when the machine stops: large enough that threads seldom wait for the last one of a call.
constexpr int64_t kChunksPerRecord = 16;  // of --max_tokens_per_batch, for each thread or for the GPU
constexpr int64_t kBatchesPerRecord = 4;  // of a language model, which takes long for one, and all threads for it
constexpr size_t kMostTasks = 2;          // of writing that wait
constexpr double kSecondsPerMessage = 30;

std::span<float> numbers_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}
std::span<const float> numbers_of(const std::vector<float>& numbers) { return numbers; }

// Two for each thread that tokenizes, one that is read and one that is scored.
int64_t tables_read(int tokenizing_threads) { return 2 * int64_t{tokenizing_threads} + 2; }
constexpr int64_t kInParts = 1;  // the one that is read is there twice: its parts, and made one

class Scorer {
 public:
  explicit Scorer(const ScoringRun& run)
      : config_(run.config),
        model_(run.model),
        journal_(run.journal),
        output_(run.output),
        tokens_per_record_((run.model.text.form == rows::RowForm::kPieces ? kBatchesPerRecord : kChunksPerRecord) *
                           run.config.tokens_at_a_time() * (run.config.gpu() ? 1 : threads_per_rank(1))) {}

  void run(data::TableReader& input, int64_t first_row, PredictReport& report) {
    rows::EncoderPool pool(model_.tokenizer, model_.places());
    const int64_t first_new_row = first_row + journal_.rows_found();
    const auto encode = [&](const data::Table& table) {
      const int64_t found = std::clamp<int64_t>(first_new_row - table.first_row(), 0, table.num_rows());
      return Window{pool.encode(table, model_.text, nullptr, found), rows::text_checksums(table, model_.text), found};
    };
    data::TaskQueue writing(kMostTasks);
    auto left = Clock::now();
    const auto score = [&](const Window& window) {
      report.seconds_waiting_for_input += seconds_since(left);
      require_same_texts(window, first_row);
      if (has_row_numbers(model_)) {
        score_window(window, writing, report);
      } else {
        score_tokens(window, writing, report);
      }
      report.score.rows_cut += std::ssize(window.rows.cut_rows);
      tell_progress(report);
      left = Clock::now();
    };
    const int workers = tokenizing_threads(config_);
    data::ordered_parallel_map([&] { return input.next(); }, encode, score,
                               {.workers = workers, .max_in_flight = tables_read(workers)});
    writing.finish();
    report.seconds_waiting_for_output = writing.seconds_waited();
    rows::tell_cut_rows(report.score.rows_cut, model_.text);
    report.score.tokens = journal_.tokens_found() + report.tokens_scored;
  }

 private:
  struct Window {
    rows::EncodedRows rows;
    std::vector<uint32_t> texts;  // a checksum of each row
    int64_t found = 0;            // rows at the beginning that are in the journal
  };

  // The input may have changed where its size, its time and its ends do not show it.
  void require_same_texts(const Window& window, int64_t first_row_of_job) {
    const auto other = journal_.find_other_texts(std::span(window.texts).first(static_cast<size_t>(window.found)));
    if (!other) return;
    const data::Table& table = window.rows.table;
    const int64_t first = first_row_of_job + other->begin - table.first_row();
    fail(ErrorKind::kData,
         "the input has changed: texts of the {} rows from {} on are not those that the interrupted run scored; pass "
         "--overwrite_output to delete what it scored and start over, or bring the old input back",
         other->end - other->begin, table.where(std::max<int64_t>(0, first)));
  }

  int64_t record_end(const rows::EncodedRows& rows, int64_t begin) const {
    const auto end = std::ranges::upper_bound(rows.offsets, rows.first_token(begin) + tokens_per_record_);
    const int64_t row = rows.row_of_sequence(end - rows.offsets.begin() - 1);
    return std::clamp<int64_t>(row, begin + 1, rows.num_rows());
  }

  // Scores the rows that are not in the journal: score(begin, end) gives the numbers of these rows that it keeps.
  template <typename Score>
  void score_records(const Window& window, data::TaskQueue& writing, PredictReport& report, const Score& score) {
    const rows::EncodedRows& rows = window.rows;
    int64_t end = 0;
    for (int64_t begin = window.found; begin < rows.num_rows(); begin = end) {
      end = record_end(rows, begin);
      const int64_t tokens = rows.first_token(end) - rows.first_token(begin);
      const auto texts = window.texts.begin() + begin;
      writing.push([this, texts = std::vector(texts, texts + (end - begin)), numbers = score(begin, end), tokens] {
        journal_.append({.texts = texts, .numbers = numbers_of(numbers), .tokens = tokens});
      });
      report.rows_scored += end - begin;
      report.tokens_scored += tokens;
    }
    report.score.rows += rows.num_rows();
  }

  void score_window(const Window& window, data::TaskQueue& writing, PredictReport& report) {
    const rows::EncodedRows& rows = window.rows;
    const at::Tensor numbers = at::empty({rows.num_rows(), numbers_per_row(model_)}, at::kFloat);
    journal_.read(numbers_of(numbers.narrow(0, 0, window.found)));
    score_records(window, writing, report, [&](int64_t begin, int64_t end) {
      at::Tensor part = row_numbers(config_, model_, rows, begin, end);
      numbers.narrow(0, begin, end - begin).copy_(part);
      return part;
    });
    writing.push([this, table = rows.table, numbers] { output_.append(table, scored_rows(model_, table, numbers)); });
  }

  void score_tokens(const Window& window, data::TaskQueue& writing, PredictReport& report) {
    const rows::EncodedRows& rows = window.rows;
    const EntityRules& rules = model_.task.entities;
    const auto read = [this](std::span<float> numbers) { journal_.read(numbers); };
    data::SpanRows entities;
    while (std::ssize(entities) < window.found) entities.push_back(read_entities(read, rules));
    score_records(window, writing, report, [&](int64_t begin, int64_t end) {
      const at::Tensor logits = score_encoded(config_, model_, rows, begin, end);
      data::SpanRows part = find_entities(rows, begin, end, logits, rules);
      std::vector<float> numbers;
      for (const auto& of_row : part) append_numbers(of_row, rules, numbers);
      std::ranges::move(part, std::back_inserter(entities));
      return numbers;
    });
    writing.push([this, table = rows.table, entities = std::move(entities)]() mutable {
      output_.append(table, scored_rows(model_, table, std::move(entities)));
    });
  }

  void tell_progress(const PredictReport& report) {
    if (seconds_since(told_) < kSecondsPerMessage) return;
    told_ = Clock::now();
    log::info("{} rows, {:.1f} a second", report.score.rows,
              static_cast<double>(report.rows_scored) / seconds_since(start_));
  }

  const ScoreConfig& config_;
  ScoringModel& model_;
  PredictionJournal& journal_;
  PredictionOutput& output_;
  int64_t tokens_per_record_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point told_ = start_;
};

// Of a table. A token has a byte of text or more; windows and pieces share some.
int64_t most_tokens(const rows::TextOptions& text, int64_t rows) {
  const int64_t length = text.max_seq_length;
  return text.is_split() ? data::kTableBytes / (length - text.doc_stride) * length + rows * length : rows * length;
}

// Of lists of words, which are there as strings while they are tokenized, and while the labels of one table are
// written.
int64_t word_bytes(int64_t tokenizing_threads) {
  constexpr int64_t kLeastBytesOfWord = 4;  // as a table counts the values of lists
  constexpr int64_t kLabel = sizeof(std::optional<std::string>) + sizeof(std::optional<float>);
  const int64_t strings = (tokenizing_threads + 1) * static_cast<int64_t>(sizeof(std::string));
  return data::kTableBytes / kLeastBytesOfWord * (strings + kLabel);
}

}  // namespace

StreamMemory stream_memory(const ScoreConfig& config, const ScoringModel& model, int64_t columns) {
  const int64_t rows = data::TableSource().rows_per_chunk;
  const int64_t read = tables_read(tokenizing_threads(config));
  const auto written = static_cast<int64_t>(kMostTasks) + 1;
  const int64_t length = model.text.max_seq_length;
  const int64_t tokens = most_tokens(model.text, rows);
  const auto of_token =
      static_cast<int64_t>(sizeof(int32_t) + (model.places() == rows::Places::kNone ? 0 : sizeof(rows::TokenPlace)));
  // Twice more as columns of what is being written.
  const int64_t of_row = has_row_numbers(model) ? numbers_per_row(model) * static_cast<int64_t>(sizeof(float))
                                                : length * static_cast<int64_t>(sizeof(data::LabelledSpan));
  constexpr int64_t kOfGroup = 3;  // its pages wait in a buffer that doubles as it grows
  const int64_t of_tables = (read + kInParts + written) * data::kTableBytes + read * tokens * of_token +
                            (model.text.form == rows::RowForm::kWords ? word_bytes(tokenizing_threads(config)) : 0) +
                            (written + 3) * rows * of_row + kOfGroup * data::TableWriterOptions().bytes_per_group +
                            data::bytes_of_columns(columns);
  constexpr int64_t kOfAllocator = 4;  // buffers grow by more than they need, and sizes are rounded up
  return {.tables = read + written, .bytes = of_tables + of_tables / kOfAllocator};
}

void score_into(const ScoringRun& run, data::TableReader& input, int64_t first_row, PredictReport& report) {
  Scorer(run).run(input, first_row, report);
}

}  // namespace strake::scoring
