#include "strake/tasks/prepare.h"

#include <limits>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/threads.h"
#include "strake/data/input_files.h"
#include "strake/data/token_file.h"
#include "strake/rows/collect_labels.h"
#include "strake/tasks/output_check.h"

namespace strake::tasks {

void PrepareConfig::validate() const {
  require(!input.empty(), ErrorKind::kUsage, "--input names no file");
  require(!output.empty(), ErrorKind::kUsage, "--output names no file");
  require(!tokenizer.empty(), ErrorKind::kUsage, "--tokenizer names no folder or file");
  text.validate();
  require(data::known_format(output) == data::TableFormat::kParquet, ErrorKind::kUsage,
          "--output {}: tokens are written as Parquet; name a file that ends with .parquet", output);
  require(text.max_seq_length <= std::numeric_limits<int32_t>::max(), ErrorKind::kUsage,
          "--max_seq_length {} is above {}", text.max_seq_length, std::numeric_limits<int32_t>::max());
  require(problem_type.empty() || !text.label_column.empty(), ErrorKind::kUsage,
          "--problem_type {} needs a --label_column", problem_type);
}

PrepareReport prepare(const PrepareConfig& config) {
  config.validate();
  const auto start = Clock::now();
  const auto tokenizer = tokenizers::Tokenizer::load(config.tokenizer);
  data::TableReader input = rows::open_input(config.input, config.text);
  check_output_file(config.output, input.files());
  remove_atomic_leftovers(config.output);  // of a run that was killed
  std::optional<rows::LabelMap> labels;
  if (!config.text.label_column.empty()) {
    labels = rows::collect_labels(rows::make_source(config.input, config.text.encoding), config.text.label_column,
                                  rows::parse_problem_type_flag(config.problem_type));
  }
  data::TokenFileInfo info{.tokenizer = tokenizer->fingerprint(),
                           .max_length = config.text.max_seq_length,
                           .source = config.input.front(),
                           .has_pairs = !config.text.text_pair_column.empty()};
  if (labels) info.label_kind = rows::label_kind_of(labels->problem());
  if (labels && labels->problem() != models::ProblemType::kRegression) info.label_names = labels->names();

  PrepareReport report;
  const auto loaded = Clock::now();
  report.load_seconds = seconds_between(start, loaded);
  data::TokenFileWriter writer(config.output, info);
  rows::for_each_encoded(input, {tokenizer, config.text, labels ? &*labels : nullptr}, threads_per_rank(1),
                         [&](const rows::EncodedRows& rows) {
                           const data::TextColumn texts = rows.table.text(config.text.text_column);
                           for (int64_t i = 0; i < rows.num_rows(); ++i) {
                             writer.append(rows.token_row(i));
                             report.text_bytes += static_cast<int64_t>(texts[i].size());
                           }
                           report.rows += rows.num_rows();
                           report.tokens += rows.offsets.back();
                           report.rows_cut += std::ssize(rows.cut_rows);
                         });
  require(report.rows > 0, ErrorKind::kData, "{} has no rows", config.input.front());
  writer.finish();
  rows::tell_cut_rows(report.rows_cut, config.text);
  report.seconds = seconds_since(loaded);
  return report;
}

}  // namespace strake::tasks
